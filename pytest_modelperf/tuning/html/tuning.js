// The tuning of a case: the speedup of each set of options, as a point on its interval. The same
// figures are in the overview, for readers who do not see a picture.
(() => {
  "use strict";

  const { el, hide, section } = modelperf;
  const { note } = modelperf.tables;

  // The scale is logarithmic, so that twice as fast and half as fast are as far from no gain.
  function scaleOf(tried) {
    const logs = tried.flatMap(({ speedup }) => speedup ?? [])
      .filter((value) => value !== null && value > 0).map(Math.log);
    const reach = Math.max(0.05, ...logs.map(Math.abs)) * 1.05;
    return (value) => 50 * (1 + Math.min(Math.max(Math.log(value) / reach, -1), 1));
  }

  // A part of a track, from a place on.
  const mark = (name, left, width = null) => el("span", {
    class: `tuning-${name}`, style: `left: ${left}%${width === null ? "" : `; width: ${width}%`}`,
  });

  function track({ speedup, word }, scale) {
    const parts = [mark("zero", scale(1))];
    const [value, low, high] = speedup ?? [null, null, null];
    if (low !== null && high !== null) {
      parts.push(mark("interval", scale(low), scale(high) - scale(low)));
    }
    if (value !== null) parts.push(mark("point", scale(value)));
    return el("span", { class: `tuning-track tuning-${word}`, "aria-hidden": "true" }, parts);
  }

  const figure = ({ speedup, word }) => (speedup ? `x${speedup[0].toFixed(2)} ${word}` : word);

  function rows(tried) {
    const scale = scaleOf(tried);
    return tried.flatMap((each) => {
      const winner = each.is_winner ? " tuning-winner" : "";
      return [
        el("span", { class: `tuning-name${winner}`, text: each.name }),
        track(each, scale),
        el("span", { class: `tuning-figure${winner}`, text: figure(each) }),
      ];
    });
  }

  section("tuning", {
    draw(root, view) {
      const tried = view.case?.tuning?.tried ?? [];
      if (!tried.length) {
        hide(root);
        return;
      }
      root.replaceChildren(
        note("The line in the middle is no gain; right of it is faster, on a logarithmic scale."),
        el("div", { class: "tuning-rows" }, rows(tried)));
    },
  });
})();
