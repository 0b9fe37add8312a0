(() => {
  const short = (x) => (x >= 1e6 ? `${+(x / 1e6).toPrecision(3)}M` : x >= 1e3 ? `${+(x / 1e3).toPrecision(3)}k` : `${x}`);

  // --- paper: everything unfolded while printing --------------------------------------------------------

  function setUpPrinting() {
    let opened = [];
    const fold = (printing) => {
      if (printing) opened.push(...document.querySelectorAll("details:not([open])"));
      for (const details of opened) details.open = printing;
      if (!printing) opened = [];
    };
    matchMedia("print").addEventListener("change", (event) => fold(event.matches));
    addEventListener("beforeprint", () => fold(true));
    addEventListener("afterprint", () => fold(false));
  }

  // --- learning curves ----------------------------------------------------------------------------------

  function setUpCurves() {
    const data = JSON.parse(byId("data").textContent);
    if (!data.quantities.length) {
      byId("panels").append(html("p", { class: "empty" }, "No learning curve has been stored yet."));
      return;
    }
    const variants = [...data.variants.keys()];
    const state = {
      algo: 0,
      quantity: data.quantities[0].key,
      tasks: new Set(data.tasks.keys()),
      variants: new Set(variants.filter((v) => data.variants[v].shown)),
      seeds: data.training,
      paper: false,
    };
    const draw = () => drawPanels(data, state);

    for (const [i, name] of data.algos.entries()) {
      const input = html("input", { type: "radio", name: "algo", value: i });
      input.checked = i === state.algo;
      input.addEventListener("change", () => { state.algo = i; draw(); });
      byId("algos").append(html("label", {}, input, html("span", {}, name)));
    }
    const options = ["seeds", "paper"].map(byId).filter((box) => box !== null);
    for (const { key, title } of data.quantities) byId("quantity").append(html("option", { value: key }, title));
    byId("quantity").addEventListener("change", (event) => {
      state.quantity = event.target.value;
      const first = state.quantity === data.quantities[0].key; // only its seeds are in the page
      for (const box of options) box.disabled = !first;
      draw();
    });
    for (const box of options) {
      box.checked = state[box.id];
      box.addEventListener("change", () => { state[box.id] = box.checked; draw(); });
    }
    addChips(byId("tasks"), data.tasks.map((name) => [name]), state.tasks, draw);
    const chips = addChips(byId("variants"), data.variants.map((v) => [swatch(v), v.label]), state.variants, draw);
    for (const [i, chip] of chips.entries()) {
      const spot = (on) => () => spotlight(on ? i : null);
      for (const type of ["pointerenter", "focus"]) chip.addEventListener(type, spot(true));
      for (const type of ["pointerleave", "blur"]) chip.addEventListener(type, spot(false));
    }
    // What leaves no choice is not offered; a training shows all quantities at once.
    const choices = { algos: data.algos, tasks: data.tasks, variants, quantity: data.training ? [] : data.quantities };
    for (const [id, all] of Object.entries(choices)) byId(id).closest("fieldset, label").hidden = all.length < 2;
    byId("seeds").closest("label").hidden = !data.series.some((s) => Object.values(s.curves).some((c) => c.seeds?.length > 1));
    byId("controls").hidden = ![...byId("controls").querySelectorAll("input, select, button")].some((e) => !e.closest("[hidden]:not(#controls)"));

    let width = 0;
    new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - width) < 1) return;
      width = entry.contentRect.width;
      draw();
    }).observe(byId("panels"));
  }

  // Buttons that put places into `chosen` and take them out, and one each for all and none.
  function addChips(box, contents, chosen, changed) {
    const chips = contents.map((content, i) => {
      const chip = html("button", { type: "button", class: "chip" }, ...content);
      chip.addEventListener("click", () => {
        if (!chosen.delete(i)) chosen.add(i);
        update();
      });
      return chip;
    });
    const mark = () => chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(chosen.has(i))));
    const update = () => { mark(); changed(); };
    const shortcut = (name, places) => {
      const chip = html("button", { type: "button", class: "chip plain" }, name);
      chip.addEventListener("click", () => {
        chosen.clear();
        for (const i of places) chosen.add(i);
        update();
      });
      return chip;
    };
    mark();
    box.append(...chips);
    if (chips.length > 1) box.append(html("span", { class: "whole" }, shortcut("all", [...contents.keys()]), shortcut("none", [])));
    return chips;
  }

  const tint = (variant) => ({ style: `--own:${variant.colour}` });
  const swatch = (v) => html("span", { class: `swatch tinted${v.changed ? " changed" : ""}`, ...tint(v), "aria-hidden": "true" });

  // Dims every line but one variant's, in all panels.
  function spotlight(place) {
    for (const plot of document.querySelectorAll(".plot svg")) {
      plot.classList.toggle("spotted", place !== null && plot.querySelector(`[data-variant="${place}"]`) !== null);
      for (const g of plot.querySelectorAll(".curve")) g.classList.toggle("spot", g.dataset.variant === String(place));
    }
  }

  // A panel per task; of a training, for each quantity of each task, the first of them large.
  function drawPanels(data, state) {
    const box = byId("panels");
    const tasks = [...state.tasks].sort((a, b) => a - b);
    const quantities = data.training ? data.quantities : [{ key: state.quantity, title: "" }];
    const shown = tasks.flatMap((task) => quantities
      .filter(({ key }) => curvesOf(data, state, task, key).some((s) => state.variants.has(s.variant)))
      .map(({ key, title }, i) => ({ task, key, title, large: i === 0 && (data.training || tasks.length === 1) })));
    const small = shown.filter(({ large }) => !large).length;
    box.style.setProperty("--columns", columnsOf(box.clientWidth, data.training ? Math.round(small / tasks.length) : small));
    const panels = shown.map(({ task, title, large }) =>
      html("figure", { class: `panel${large ? " first" : ""}` }, html("h3", {}, title || data.tasks[task])));
    box.replaceChildren(...panels);
    if (data.training && tasks.length > 1) { // what is first of a task has its name above it
      for (const [i, { task, large }] of shown.entries()) if (large) panels[i].before(html("h3", { class: "task" }, data.tasks[task]));
    }
    if (!shown.length) box.append(html("p", { class: "empty" }, `Choose a ${tasks.length ? "variant" : "task"} above.`));
    for (const [i, { task, key, large }] of shown.entries()) drawPanel(panels[i], task, data, { ...state, quantity: key }, large);
  }

  // As many as there is room for, of those that leave the fewest places empty.
  const PANEL = 336; // pixels that one needs
  function columnsOf(width, panels) {
    const most = clamp(Math.floor((width + 16) / (PANEL + 16)), 1, panels || 1);
    const empty = (columns) => (columns - (panels % columns)) % columns;
    let best = most;
    for (let columns = most - 1; columns > 1; columns--) if (empty(columns) < empty(best)) best = columns;
    return best;
  }

  const curvesOf = (data, state, task, key) => data.series.filter((s) => s.task === task && s.algo === state.algo && s.curves[key]);

  function drawPanel(panel, task, data, state, large) {
    const here = curvesOf(data, state, task, state.quantity);
    const visible = here
      .filter((s) => state.variants.has(s.variant))
      .map((s) => ({ ...s, ...s.curves[state.quantity], look: data.variants[s.variant] }))
      .map((s) => ({ ...s, x: data.steps[s.x] }));
    const absent = [...state.variants].filter((v) => !here.some((s) => s.variant === v)).sort((a, b) => a - b);
    if (visible.length) panel.append(plot(visible, panel, panel.firstChild.textContent, state, large));
    if (absent.length && !data.training) {
      const names = absent.map((v) => data.variants[v].label).join(" · ");
      panel.append(html("p", { class: "without" }, `No results here: ${names}`));
    }
  }

  function plot(visible, panel, title, state, large) {
    const style = getComputedStyle(panel);
    const width = panel.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = large ? Math.min(460, Math.max(280, width * 0.45)) : 230;
    const seeds = state.seeds && visible.some((s) => s.seeds);
    const paper = state.paper && visible.some((s) => s.seeds);

    // Scales: from data to pixels.
    const extent = visible.flatMap((s) => [
      ...s.mean, ...s.low, ...s.high, ...(seeds ? s.seeds.flat() : []), ...(paper ? [s.paper] : []),
    ]).filter((v) => v !== null).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const room = (extent[1] - extent[0]) * 0.05 || Math.abs(extent[0]) * 0.05 || 1;
    const [low, high] = [extent[0] - room, extent[1] + room];
    const last = Math.max(1, ...visible.map((s) => s.x.at(-1)));
    const marks = ticks(low, high, large ? 7 : 5);
    const left = 12 + 7.4 * Math.max(...marks.map((v) => say(v).length));
    const [top, right, bottom] = [8, 14, 26];
    const x = (step) => left + (step / last) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);

    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const v of marks) {
      image.append(
        svg("line", { class: "gridline", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
        svg("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, say(v)),
      );
    }
    image.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    for (const v of ticks(0, last, width > 500 ? 8 : 4)) {
      image.append(svg("text", { x: x(v), y: height - 8, "text-anchor": "middle" }, short(v)));
    }

    const layers = visible.map((s) => {
      const kind = `curve tinted${s.look.changed ? " changed" : ""}`;
      const group = svg("g", { class: kind, "data-variant": s.variant, ...tint(s.look) });
      if (seeds) group.append(svg("path", { class: "seed", d: s.seeds.map((row) => path(row, (k) => x(s.x[k]), y)).join("") }));
      else group.append(svg("path", { class: "band", d: area(s.low, s.high, (k) => x(s.x[k]), y) }));
      group.append(svg("path", { class: "line", d: path(s.mean, (k) => x(s.x[k]), y) }));
      if (paper && s.paper !== null) {
        const [cx, cy] = [x(last), y(s.paper)];
        group.append(svg("path", { class: "published", d: `M${cx} ${cy - 6}l5 6l-5 6l-5 -6z` }));
      }
      return group;
    });
    image.append(...layers);

    const readout = html("div", { class: "readout" });
    readout.hidden = true;
    const pointer = svg("g");
    image.append(pointer);
    const box = html("div", {
      class: "plot",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `${title}: ${visible.map((s) => s.look.label).join(", ")}. Arrow keys read the values.`,
    }, image, readout);
    follow(box, { visible, x, y, left, width, right, height, top, bottom, last, pointer, readout });
    return box;
  }

  // The read-out: mouse, touch and keys move one cursor over the steps of all visible lines.
  function follow(box, chart) {
    const { visible, x, left, width, right, last } = chart;
    const steps = [...new Set(visible.flatMap((s) => s.x))].sort((a, b) => a - b);
    let at = null;

    const nearest = (list, step) => list.reduce((best, v, k) => (Math.abs(v - step) < Math.abs(list[best] - step) ? k : best), 0);
    const hide = () => { at = null; chart.readout.hidden = true; chart.pointer.replaceChildren(); };
    const show = (k) => {
      at = Math.max(0, Math.min(steps.length - 1, k));
      const rows = visible
        .map((s) => ({ s, k: nearest(s.x, steps[at]) }))
        .filter(({ s, k: i }) => Math.abs(s.x[i] - steps[at]) <= last / 50 && s.mean[i] !== null)
        .map(({ s, k: i }) => ({ s, mean: s.mean[i], low: s.low[i], high: s.high[i] }))
        .sort((a, b) => b.mean - a.mean);
      drawReadout(box, chart, steps[at], rows);
      return rows;
    };

    const point = (event) => {
      const bounds = box.firstChild.getBoundingClientRect();
      const px = ((event.clientX - bounds.left) / bounds.width) * width;
      show(nearest(steps, ((px - left) / (width - left - right)) * last));
    };
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerdown", point);
    box.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", (event) => {
      const moves = {
        ArrowLeft: (at ?? steps.length) - 1, ArrowRight: (at ?? -1) + 1,
        PageUp: (at ?? 0) - 10, PageDown: (at ?? 0) + 10,
        Home: 0, End: steps.length - 1,
      };
      if (event.key === "Escape") hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      const rows = show(moves[event.key]);
      byId("spoken").textContent = `Step ${whole.format(steps[at])}: ` + rows.map(({ s, mean, low, high }) =>
        `${s.look.label} ${say(mean)}${low === null ? "" : `, from ${say(low)} to ${say(high)}`}`).join("; ");
    });
  }

  function drawReadout(box, chart, step, rows) {
    const { x, y, top, height, bottom, width, pointer, readout } = chart;
    pointer.replaceChildren(
      svg("line", { class: "cursor", x1: x(step), x2: x(step), y1: top, y2: height - bottom }),
      ...rows.map(({ s, mean }) => svg("circle", { class: "dot tinted", r: 4, cx: x(step), cy: y(mean), ...tint(s.look) })),
    );
    const body = html("tbody", {}, ...rows.map(({ s, mean, low, high }) => html("tr", {},
      html("th", { scope: "row" }, swatch(s.look), s.look.label),
      html("td", { class: "mean" }, say(mean)),
      html("td", { class: "range" }, low === null ? "one seed" : `${say(low)} to ${say(high)}`),
    )));
    readout.replaceChildren(html("table", {}, html("caption", {}, `Step ${whole.format(step)}`), body));
    readout.hidden = false;
    // Beside the cursor, on the side with more room; where there is none, under the chart. Never wider than it.
    const [room, own] = [box.clientWidth, readout.offsetWidth];
    const at = (x(step) / width) * room;
    const beside = Math.max(at, room - at) > own + 12;
    const wanted = beside ? (at > room / 2 ? at - own - 12 : at + 12) : at - own / 2;
    readout.style.left = `${Math.max(0, Math.min(room - own, wanted))}px`;
    readout.style.top = beside ? "0" : "calc(100% + 4px)";
  }

  document.addEventListener("DOMContentLoaded", () => {
    setUpTheme();
    setUpCopying();
    setUpPrinting();
    setUpBar();
    setUpCurves();
  });
})();
