// The list of the parts of a page: only those that are there, and which of them is being read.
(() => {
  "use strict";

  const page = document.documentElement;
  const links = [...document.querySelectorAll("#parts a")];
  const partOf = (link) => document.getElementById(link.hash.slice(1));
  // The address keeps the choices, so a link only scrolls.
  const inView = new Set();

  function goTo(event, link) {
    event.preventDefault();
    const part = partOf(link);
    part.scrollIntoView();
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }

  function mark() {
    const current = links.find((link) => inView.has(partOf(link)));
    for (const link of links) {
      if (link === current) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
  }

  const watcher = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) inView.add(target);
      else inView.delete(target);
    }
    mark();
  }, { rootMargin: "-25% 0px -60% 0px" });

  for (const link of links) {
    link.addEventListener("click", (event) => goTo(event, link));
    watcher.observe(partOf(link));
  }
  page.addEventListener("drawn", () => {
    for (const link of links) link.parentElement.hidden = partOf(link).hidden;
  });

  // What is jumped to begins below the bar, whose height depends on the width.
  const bar = document.getElementById("bar");
  new ResizeObserver(() => page.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
})();
