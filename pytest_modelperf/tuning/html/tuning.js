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

  const KINDS = { faster: "tuning-faster", slower: "tuning-slower" };

  function track({ speedup, word }, scale) {
    const zero = el("span", { class: "tuning-zero", style: `left: ${scale(1)}%` });
    const parts = [zero];
    if (speedup) {
      const [value, low, high] = speedup;
      if (low !== null && high !== null) {
        const [from, to] = [scale(low), scale(high)];
        parts.push(el("span",
          { class: "tuning-interval", style: `left: ${from}%; width: ${to - from}%` }));
      }
      parts.push(el("span", { class: "tuning-point", style: `left: ${scale(value)}%` }));
    }
    return el("span", { class: `tuning-track ${KINDS[word] ?? ""}`, "aria-hidden": "true" }, parts);
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
