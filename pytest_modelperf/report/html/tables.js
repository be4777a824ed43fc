// Tables that can be sorted, and the cells and texts that all tables of layers share.
modelperf.tables = (() => {
  "use strict";

  const { el } = modelperf;
  const { changeText, isKnown, rangeText, shareText, tone } = modelperf.figures;

  // Names may change the direction of writing; their own element limits that to them.
  const nameText = (text) => el("bdi", { text });

  const note = (text) => el("p", { class: "layers-note", text });

  // Digits are compared as numbers, so that layer2 comes before layer10.
  const textKey = (text) =>
    text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));

  // Unknown values come last in both directions; equal values keep their order.
  function sortedBy(rows, read, isDescending) {
    const sign = isDescending ? -1 : 1;
    const keyed = rows.map((row) => {
      const value = read(row);
      return { row, key: typeof value === "string" ? textKey(value) : value };
    });
    keyed.sort((one, other) => {
      if (!isKnown(one.key) || !isKnown(other.key)) return isKnown(other.key) - isKnown(one.key);
      if (one.key === other.key) return 0;
      return one.key < other.key ? -sign : sign;
    });
    return keyed.map(({ row }) => row);
  }

  // The head of a table; columns with `read` sort: text ascending first, numbers descending.
  function sortableHead(columns, sort, onSort) {
    const cells = columns.map((column) => headCell(column, sort, pick));
    function pick(column) {
      const isAgain = sort.id === column.id;
      sort.isDescending = isAgain ? !sort.isDescending : !column.isText;
      sort.id = column.id;
      cells.forEach((cell, index) => markSorted(cell, columns[index], sort));
      onSort();
    }
    return el("thead", {}, el("tr", {}, ...cells));
  }

  function headCell(column, sort, pick) {
    // A column without a title has no heading, which a screen reader would announce as empty.
    const tag = column.title ? "th" : "td";
    const scope = column.title ? "col" : null;
    const cell = el(tag, { scope, class: column.isText ? "text" : "number" });
    if (column.note) cell.title = column.note;
    if (column.read) {
      const press = () => pick(column);
      const attributes = { type: "button", text: column.title, "data-column": column.id };
      cell.append(el("button", { ...attributes, class: "sort", on: { click: press } }));
    } else {
      cell.append(column.title);
    }
    markSorted(cell, column, sort);
    return cell;
  }

  function markSorted(cell, column, sort) {
    if (column.id === sort.id && column.read) {
      cell.setAttribute("aria-sort", sort.isDescending ? "descending" : "ascending");
    } else {
      cell.removeAttribute("aria-sort");
    }
  }

  // A box in which a wide table scrolls, also by keys.
  function scrollBox(label, table) {
    const attributes = { class: "layers-scroll", role: "region", "aria-label": label };
    return el("div", { ...attributes, tabindex: "0" }, table);
  }

  function numberCell(text, attributes = {}) {
    return el("td", { class: "number", text, ...attributes });
  }

  function shareCell(share, side) {
    const cell = numberCell("");
    const bar = el("span", { class: `share-bar side-${side ? "b" : "a"}`, "aria-hidden": "true" });
    bar.style.setProperty("--share", Math.max(0, Math.min(1, share ?? 0)));
    cell.classList.add("share");
    const line = el("span", { class: "share-line" }, isKnown(share) ? bar : null);
    line.append(shareText(share));
    cell.append(line);
    return cell;
  }

  function changeCell({ change_ms: ms, change_interval_ms: interval }, decimals, attributes = {}) {
    const cell = numberCell("", attributes);
    cell.classList.add("change");
    const mark = tone(ms, interval);
    cell.append(el("span", { class: mark, text: changeText(ms, decimals) }));
    if (interval) cell.append(el("small", { text: rangeText(interval, decimals) }));
    return cell;
  }

  return {
    nameText,
    note,
    sortedBy,
    sortableHead,
    scrollBox,
    numberCell,
    shareCell,
    changeCell,
  };
})();
