(() => {
  // The value that a share of the others lie below.
  function quantile(values, share) {
    const sorted = known(values).sort((a, b) => a - b);
    return sorted.length ? sorted[Math.round(share * (sorted.length - 1))] : 0;
  }

  // --- what can be said of all agents together ----------------------------------------------------------

  // Scales are shared, so that cards side by side can be compared by eye.
  function scalesOf(agents) {
    const every = (of) => agents.flatMap(of);
    const edges = (sign) => every((a) => a.mean.map((m, t) => m + sign * Math.max(0, a.std[t])));
    const values = every((a) => [...a.mean, ...known(a.returns)]);
    const weights = every((a) => a.weight);
    const rewards = every((a) => a.rewards);
    // Belief: wide enough for the bells and for most returns, but never so wide that the bells are needles.
    const spread = Math.max(0, ...agents.map((a) => quantile(a.std, 0.9)));
    const miss = quantile(every((a) => a.returns.map((g, t) => (g === null ? null : Math.abs(g - a.mean[t])))), 0.9);
    const half = spread > 0 ? clamp(miss * 1.15, 3.4 * spread, 9 * spread) : miss * 1.3;
    return {
      length: Math.max(...agents.map((a) => a.mean.length)),
      value: roomy(
        Math.min(least(values), quantile(edges(-1), 0.02)),
        Math.max(most(values), quantile(edges(1), 0.98)),
      ),
      normality: errorScale(every((a) => (a.z ? a.error : []))),
      disagreement: errorScale(every((a) => (hasError(a) && !a.z ? a.error : []))),
      weight: roomy(Math.min(least(weights), 0.9), Math.max(most(weights), 1)),
      reward: roomy(Math.min(0, least(rewards)), Math.max(0, most(rewards))),
      half: half || 1,
      errors: agents.some(hasError),
    };
  }
  // Logarithmic where a few spikes would flatten all the rest.
  function errorScale(errors) {
    const positive = errors.filter((v) => v > 0);
    const log = positive.length > 0 && most(positive) > 300 * quantile(positive, 0.5);
    return { log, domain: log ? [quantile(positive, 0.01), most(positive)] : [0, most([...errors, 1e-9]) * 1.08] };
  }
  function roomy(low, high) {
    const room = (high - low) * 0.06 || Math.abs(low) * 0.06 || 1;
    return [low - room, high + room];
  }

  const hasError = (agent) => agent.error_name !== "";

  // --- the chart of something over time -----------------------------------------------------------------

  const NARROW = 260; // a card on a phone, beside another: charts have little room
  const margins = (width) => (width < NARROW ? [44, 9] : [50, 16]); // of every chart: times are above each other
  const captionOf = (width) => (width < NARROW ? 44 : 26); // heights, as in the style sheet
  const GAP = 14;

  // A frame with scales, a cursor and a veil over what is still to come; `paint(add, x, y)` fills it, and
  // `at(t)` gives the heights of the cursor's dots.
  function timeline({ width, height, length, domain, log = false, axis = false, name, marks, paint, at }) {
    const [top, bottom] = [6, axis ? 24 : 6];
    const [left, right] = margins(width);
    const to = log ? Math.log10 : (v) => v;
    const [low, high] = domain.map(to);
    const x = (t) => left + (t / Math.max(1, length - 1)) * (width - left - right);
    const y = (v) => top + ((high - (log ? Math.log10(Math.max(v, domain[0])) : v)) / (high - low || 1)) * (height - top - bottom);
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name });
    const floor = height - bottom;
    for (const t of ticks(0, length - 1, width > 600 ? 10 : width < NARROW ? 3 : 5).filter(Number.isInteger)) {
      image.append(svg("line", { class: "gridline", x1: x(t), x2: x(t), y1: top, y2: floor }));
      if (axis) image.append(svg("text", { x: x(t), y: height - 6, "text-anchor": "middle" }, whole.format(t)));
    }
    for (const v of marks ?? (log ? decades(...domain) : ticks(...domain, Math.max(2, Math.round(height / 32))))) {
      image.append(
        svg("line", { class: "gridline", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
        svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, say(v)),
      );
    }
    paint((...shapes) => image.append(...shapes), x, y, floor, left);
    const veil = svg("rect", { class: "veil", y: 0, height: floor + 1 });
    const cursor = svg("line", { class: "cursor", y1: 0, y2: floor });
    image.append(veil, cursor);
    const dots = [];
    const show = (t) => {
      set(veil, { x: x(t), width: Math.max(0, width - x(t)) });
      set(cursor, { x1: x(t), x2: x(t) });
      at?.(t).forEach(([kind, v], k) => {
        dots[k] ??= image.appendChild(svg("circle", { class: `dot ${kind}`, r: 3.5 }));
        set(dots[k], { cx: x(t), cy: v === null ? -99 : y(v) });
      });
    };
    const box = html("div", { class: "plot" }, image);
    const stepAt = (event) => {
      const bounds = image.getBoundingClientRect();
      const px = ((event.clientX - bounds.left) / bounds.width) * width;
      return Math.round(((px - left) / (width - left - right)) * (length - 1));
    };
    return { box, show, stepAt };
  }
  function decades(low, high) {
    const found = [];
    for (let k = Math.ceil(Math.log10(low)); k <= Math.log10(high); k++) found.push(10 ** k);
    const every = Math.ceil(found.length / 4);
    return found.length ? found.filter((_, k) => k % every === 0) : [low, high];
  }

  // --- the tracks of one agent --------------------------------------------------------------------------

  function tracksOf(agent, scales) {
    const { length } = scales;
    const common = { length };
    const sums = [];
    agent.rewards.reduce((sum, r) => (sums.push(sum + r), sum + r), 0);
    const { log, domain } = agent.z ? scales.normality : scales.disagreement;
    const found = [{
      title: "Value, discounted",
      legend: [["tint", "believed"], ["ink", "followed"]],
      read: (t) => [
        ["mean", agent.mean[t]], ...(agent.std[t] > 0 ? [" ± ", ["std", agent.std[t]]] : []),
        "soft:   followed ", ["return", agent.returns[t]],
      ],
      chart: {
        ...common, height: 176, domain: scales.value,
        paint: (add, x, y) => {
          const edge = (sign) => agent.mean.map((m, t) => m + sign * Math.max(0, agent.std[t]));
          add(
            svg("path", { class: "band", d: area(edge(-1), edge(1), x, y) }),
            svg("path", { class: "line", d: path(agent.mean, x, y) }),
            svg("path", { class: "line truth", d: path(agent.returns, x, y) }),
          );
        },
        at: (t) => [["own", agent.mean[t]], ["truth", agent.returns[t]]],
      },
    }];
    if (hasError(agent)) {
      found.push({
        title: agent.error_name + (log ? " (log scale)" : ""),
        read: (t) => [["error", agent.error[t]]],
        chart: {
          ...common, height: 84, domain, log,
          paint: (add, x, y) => add(
            svg("path", { class: "band strong", d: area(agent.error.map(() => domain[0]), agent.error, x, y) }),
            svg("path", { class: "line thin", d: path(agent.error, x, y) }),
          ),
          at: (t) => [["own", agent.error[t]]],
        },
      }, {
        title: "Weight of this state",
        read: (t) => [["weight", agent.weight[t]]],
        chart: {
          ...common, height: 76, domain: scales.weight,
          paint: (add, x, y) => add(svg("path", { class: "line thin", d: path(agent.weight, x, y) })),
          at: (t) => [["own", agent.weight[t]]],
        },
      });
    } else if (scales.errors) { // room, so that the tracks beside it are level with these
      const sentence = `A ${agent.critic} critic cannot say how sure it is: every state counts the same.`;
      found.push({ title: "Error and weight", sentence, chart: { height: 84 + 76 } });
    }
    found.push({
      title: "Reward",
      read: (t) => [["reward", agent.rewards[t]], "soft:   so far, not discounted ", ["sum", sums[t]]],
      chart: {
        ...common, height: 76, domain: scales.reward,
        paint: (add, x, y) => add(
          svg("path", { class: "band", d: area(agent.rewards.map(() => 0), agent.rewards, x, y) }),
          svg("path", { class: "line thin", d: path(agent.rewards, x, y) }),
        ),
        at: (t) => [["own", agent.rewards[t]]],
      },
    }, actionTrack(agent, common));
    return found;
  }

  // What lies between two lines of steps: each value holds for half a step before and after its own.
  function stairs(low, high, x, y) {
    const last = high.length - 1;
    return high.map((value, t) => {
      if (value === low[t]) return "";
      const [from, to] = [x(Math.max(0, t - 0.5)), x(Math.min(last, t + 0.5))].map(place);
      return `M${from} ${place(y(low[t]))}V${place(y(value))}H${to}V${place(y(low[t]))}z`;
    }).join("");
  }

  // One row per component: up from its middle (or zero) to its largest value, and down to its least.
  function actionTrack(agent, common) {
    const { names, low, high, rows, discrete, counted } = agent.actions;
    const shape = counted ? stairs : area;
    const natural = clamp(96 / rows.length, 15, 64) * rows.length + 30;
    const bounds = rows.map((row, k) => [low[k] ?? least(row), high[k] ?? most(row)]);
    const zero = bounds.map(([a, b]) => clamp(0, a, b));
    const chosen = (t) => names[rows.findIndex((row) => row[t])];
    return {
      title: "Action",
      read: (t) => (discrete
        ? [["action", chosen(t)]]
        : rows.length > 6 ? [] : rows.flatMap((row, k) => [`soft:${k ? "   " : ""}${rows.length > 1 ? `${names[k]} ` : ""}`, ["action", row[t]]])),
      chart: {
        ...common, height: natural, domain: [0, 1], axis: true, marks: [],
        paint: (add, x, _, floor, left) => rows.forEach((row, k) => {
          const [a, b] = bounds[k];
          const tall = (floor - 6) / rows.length;
          const y = (v) => 6 + tall * (k + 0.06 + 0.88 * ((b - v) / (b - a || 1)));
          add(
            svg("line", { class: "gridline", x1: left, x2: x(common.length - 1), y1: y(zero[k]), y2: y(zero[k]) }),
            svg("path", { class: "band strong", d: shape(row.map(() => zero[k]), row, x, y) }),
            svg("text", { x: left - 6, y: 10 + tall * (k + 0.5), "text-anchor": "end" }, short(names[k], left - 6)),
          );
        }),
      },
    };
  }
  function short(name, room) {
    const most = Math.floor(room / 7);
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  }

  // --- what the critic believes now ---------------------------------------------------------------------

  const BELL = Array.from({ length: 81 }, (_, k) => -4 + k / 10).map((z) => [z, Math.exp(-z * z / 2)]);

  // The normal as a bell; every bar as a pin whose head is on the bell if the bar is where that normal has it.
  function belief(agent, scales, width, height) {
    const [top, bottom] = [30, 24];
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "The value distribution at this step" });
    const floor = height - bottom;
    const y = (share) => floor - share * (floor - top);

    function show(t) {
      const [mean, std, truth, bars] = [agent.mean[t], agent.std[t], agent.returns[t], agent.bars[t]];
      const x = (v) => width / 2 + ((v - mean) / scales.half) * (width / 2 - 8);
      const shapes = [svg("line", { class: "axis", x1: 0, x2: width, y1: floor, y2: floor })];
      for (const v of ticks(mean - scales.half, mean + scales.half, width > 420 ? 6 : width < NARROW ? 3 : 4)) {
        const half = 3.8 * say(v).length; // of the label, which stays inside
        shapes.push(
          svg("line", { class: "gridline", x1: place(x(v)), x2: place(x(v)), y1: top - 8, y2: floor }),
          svg("text", { x: clamp(place(x(v)), half, width - half), y: height - 7, "text-anchor": "middle" }, say(v)),
        );
      }
      if (std > 0) {
        const d = BELL.map(([z, h]) => `${place(x(mean + z * std))} ${place(y(h))}`).join("L");
        shapes.push(svg("path", { class: "bell", d: `M${d}` }));
      }
      const gaps = [];
      const pins = bars.map((q, k) => {
        const ideal = agent.z && std > 0 ? mean + std * agent.z[k] : q;
        const head = y(agent.z ? BELL_AT(agent.z[k]) : bars.length > 1 ? 0.42 : 1);
        if (Math.abs(x(ideal) - x(q)) > 0.5) gaps.push(svg("line", { class: "gap", x1: place(x(ideal)), x2: place(x(q)), y1: head, y2: head }));
        return svg("g", { class: "pin", "data-bar": q },
          svg("line", { x1: place(x(q)), x2: place(x(q)), y1: floor, y2: head }),
          svg("circle", { cx: place(x(q)), cy: head, r: bars.length > 24 ? 2.6 : 4.2 }));
      });
      shapes.push(...gaps, ...pins);
      if (truth !== null) shapes.push(...truthMark(x(truth), truth));
      image.replaceChildren(...shapes);
    }

    // A line at the return that followed; an arrow where it is beyond the edge. Its name is beside it if there is room.
    function truthMark(at, truth) {
      const inside = clamp(at, 7, width - 7);
      const words = `followed ${say(truth)}`;
      const [left, long] = [inside > width / 2, 7 * words.length];
      const beside = (left ? inside : width - inside) > long + 6;
      const text = svg("text", beside
        ? { class: "followed", x: inside + (left ? -6 : 6), y: 13, "text-anchor": left ? "end" : "start" }
        : { class: "followed", x: clamp(inside, long / 2, width - long / 2), y: 13, "text-anchor": "middle" }, words);
      const arrow = at < 7 ? "M1 9l7 -5v10z" : `M${width - 1} 9l-7 -5v10z`;
      if (inside === at) return [svg("line", { class: "truth", x1: place(at), x2: place(at), y1: beside ? 2 : 18, y2: floor }), text];
      return beside ? [svg("path", { class: "truth", d: arrow }), text] : [text];
    }
    return { image, show };
  }
  const BELL_AT = (z) => Math.exp(-z * z / 2);

  // How far the return was from what was expected, in words.
  function surprise(agent, t) {
    if (agent.returns[t] === null) return "The rest of the return is not known.";
    if (!(agent.std[t] > 0)) return agent.bars[t].length > 1 ? "No normal fits these bars." : "This critic has no spread.";
    const z = (agent.returns[t] - agent.mean[t]) / agent.std[t];
    return `${fine.format(Math.abs(+z.toFixed(1)))} σ ${z < 0 ? "below" : "above"} expectation.`;
  }

  // --- video --------------------------------------------------------------------------------------------

  // Pictures are decoded when they are near, and drawn when decoded if still wanted.
  function screen(agent, resized) {
    const canvas = html("canvas", { role: "img", "aria-label": "What the agent does at this step", width: 8, height: 5 });
    const images = [];
    const shown = []; // by step: which picture
    for (let t = 0, k = 0; t < agent.mean.length; t++) {
      while (k + 1 < agent.frame_steps.length && agent.frame_steps[k + 1] <= t) k++;
      shown.push(k);
    }
    let wanted = -1;
    const draw = (k) => {
      if (k !== wanted) return;
      const image = images[k];
      if (canvas.width !== image.naturalWidth) {
        [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
        resized();
      }
      canvas.getContext("2d").drawImage(image, 0, 0);
      canvas.dataset.frame = k;
    };
    const fetch = (k) => {
      if (images[k] || k >= agent.frames.length) return;
      images[k] = new Image();
      images[k].addEventListener("load", () => draw(k));
      images[k].src = `data:image/webp;base64,${agent.frames[k]}`;
    };
    const show = (t) => {
      if (shown[t] === wanted) return;
      wanted = shown[t];
      for (let k = wanted; k < wanted + 8; k++) fetch(k);
      if (images[wanted].complete && images[wanted].naturalWidth) draw(wanted);
    };
    return { canvas, show };
  }

  // --- one agent ----------------------------------------------------------------------------------------

  // Steps worth a look: what a chip says, the step, and the same in a sentence.
  function moments(agent) {
    const argmax = (of) => agent.mean.reduce((best, _, t) => (of(t) > of(best) ? t : best), 0);
    const miss = (t) => (agent.returns[t] === null ? -1 : Math.abs(agent.returns[t] - agent.mean[t]) / (agent.std[t] > 0 ? agent.std[t] : 1));
    const error = argmax((t) => agent.error[t]);
    return [
      ...(!hasError(agent) ? [] : agent.z
        ? [["least normal", error, "the critic’s bars are farthest from a normal"]]
        : [["least sure", error, "the critic is least sure"]]),
      ...(known(agent.returns).length ? [["biggest surprise", argmax(miss), "the return differed most from what the critic expected"]] : []),
      ["most hopeful", argmax((t) => agent.mean[t]), "the critic expects most"],
      ["least hopeful", argmax((t) => -agent.mean[t]), "the critic expects least"],
    ];
  }

  function card(agent, scales, player) {
    const last = agent.mean.length - 1;
    const chips = moments(agent).map(([name, t]) => {
      const chip = html("button", { type: "button", class: "chip", "data-step": t }, name);
      chip.addEventListener("click", () => player.visit(t));
      return chip;
    });
    const ended = html("p", { class: "ended" }, `${agent.end} after ${whole.format(last + 1)} steps`);
    const video = agent.frames.length ? screen(agent, () => layOut()) : null;
    const stage = html("div", { class: "screen" }, video ? video.canvas : html("p", { class: "empty" }, agent.note || "Recorded without video."), ended);
    const face = html("figure", { class: "belief" });
    const tracks = html("div", { class: "tracks" });
    const deck = html("div", { class: "deck" }, html("div", { class: "views" }, stage, face), tracks);
    const element = html("article", { class: "agent tinted", style: `--own:${agent.colour}` },
      html("div", { class: "head" },
        html("h2", {}, html("span", { class: "swatch", "aria-hidden": "true" }), agent.label),
        html("p", { class: "facts" }, agent.facts.join(" · ")),
        html("div", { class: "chips", role: "group", "aria-label": "Moments to go to" }, ...chips)),
      deck);

    let parts = [];
    // Everything whose size is the window's.
    function layOut() {
      const width = tracks.clientWidth;
      const wanted = tracksOf(agent, scales);
      const start = (box) => box.getBoundingClientRect().left;
      const [beside, level] = [start(tracks) > start(stage), start(face) > start(stage)];
      // All of it fits the window, if it can; one above the other, nothing does.
      const natural = wanted.reduce((sum, track) => sum + track.chart.height, 0);
      const top = deck.getBoundingClientRect().top + scrollY + (beside ? 0 : stage.offsetHeight + GAP);
      const captions = wanted.reduce((sum, track) => sum + (track.sentence ? 2 : 1), 0);
      const room = innerHeight - top - 90 - captionOf(width) * captions;
      const stretch = beside || level ? clamp(room / natural, 0.72, 1.6) : 1;
      const drawn = wanted.map((track) => drawTrack(track, width, Math.round(track.chart.height * stretch), player));
      tracks.replaceChildren(...drawn.map((d) => d.element));
      // The bell takes the height that the picture, or the tracks beside both, leave it.
      const left = beside ? tracks.offsetHeight - stage.offsetHeight - GAP : level ? stage.offsetHeight : 260;
      const bell = belief(agent, scales, Math.max(1, face.clientWidth - 24), clamp(left - 74, 104, 340));
      const words = html("p", { class: "words" });
      const read = html("p", { class: "read large" });
      face.replaceChildren(html("figcaption", {}, html("span", { class: "name" }, "Belief, discounted"), read), html("div", { class: "plot" }, bell.image), words);
      parts = [...drawn, {
        show: (t) => {
          bell.show(t);
          readOut(read, [["mean", agent.mean[t]], ...(agent.std[t] > 0 ? [" ± ", ["std", agent.std[t]]] : [])]);
          words.textContent = surprise(agent, t);
        },
      }];
      show(player.step);
    }
    function show(step) {
      const t = Math.min(step, last);
      ended.hidden = step < last;
      video?.show(t);
      for (const part of parts) part.show(t);
      for (const chip of chips) chip.toggleAttribute("aria-current", +chip.dataset.step === step);
    }
    return { element, layOut, show };
  }

  function drawTrack(track, width, height, player) {
    const legend = (track.legend ?? []).map(([kind, text]) => html("span", { class: `key ${kind}` }, text));
    const read = html("p", { class: "read" });
    const caption = html("figcaption", {}, html("span", { class: "name" }, track.title), ...legend, read);
    if (track.sentence) {
      const text = html("p", { class: "empty", style: `height:${height + captionOf(width)}px` }, track.sentence);
      return { element: html("figure", { class: "track" }, caption, text), show: () => {} };
    }
    const chart = timeline({ ...track.chart, width, height, name: track.title });
    scrub(chart, player);
    return {
      element: html("figure", { class: "track" }, caption, chart.box),
      show: (t) => { chart.show(t); readOut(read, track.read(t)); },
    };
  }

  // Numbers with names; "soft:" marks words that explain them.
  function readOut(element, pieces) {
    element.replaceChildren(...pieces.map((piece) => {
      if (typeof piece === "string") return piece.startsWith("soft:") ? html("span", { class: "soft" }, piece.slice(5)) : piece;
      return html("b", { "data-read": piece[0] }, typeof piece[1] === "string" ? piece[1] : say(piece[1]));
    }));
  }

  // Click or drag in a chart goes there.
  function scrub(chart, player) {
    chart.box.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      chart.box.setPointerCapture(event.pointerId);
      player.visit(chart.stepAt(event));
    });
    chart.box.addEventListener("pointermove", (event) => {
      if (chart.box.hasPointerCapture(event.pointerId)) player.visit(chart.stepAt(event));
    });
  }

  // --- playing ------------------------------------------------------------------------------------------

  function makePlayer(length, fps) {
    const [scrubber, clock, play, speed, opening] = ["scrubber", "clock", "play", "speed", "opening"].map(byId);
    const player = { step: 0, playing: false, show: () => {}, moved: () => { opening.hidden = true; } };
    let exact = 0; // the step, with its fraction
    let then = 0;

    player.go = (step) => {
      player.step = clamp(step, 0, length - 1);
      scrubber.value = player.step;
      scrubber.style.setProperty("--done", player.step / Math.max(1, length - 1));
      scrubber.setAttribute("aria-valuetext", `step ${player.step} of ${length - 1}`);
      clock.replaceChildren(html("b", {}, whole.format(player.step)), ` / ${whole.format(length - 1)}`, html("span", {}, ` ${(player.step / fps).toFixed(2)} s`));
      player.show(player.step);
    };
    player.pause = () => {
      player.playing = false;
      play.setAttribute("aria-label", "Play");
      play.classList.remove("playing");
      try { history.replaceState(null, "", `#${player.step}`); } catch { /* a page without an address */ }
    };
    player.visit = (step) => { player.go(step); player.pause(); player.moved(); };
    player.toggle = () => {
      if (player.playing) { player.pause(); return; }
      if (player.step >= length - 1 || !opening.hidden) player.go(0);
      player.moved();
      player.playing = true;
      play.setAttribute("aria-label", "Pause");
      play.classList.add("playing");
      exact = player.step;
      then = performance.now();
      requestAnimationFrame(tick);
    };
    function tick(now) {
      if (!player.playing) return;
      exact += (Math.max(0, now - then) / 1000) * fps * +speed.value;
      then = now;
      if (Math.floor(exact) !== player.step) player.go(Math.floor(exact));
      if (player.step >= length - 1) player.pause();
      else requestAnimationFrame(tick);
    }

    speed.value = pace([...speed.options].map((option) => +option.value), length, fps);
    speed.title = `1× is real time: ${fine.format(fps)} steps a second`;
    scrubber.max = length - 1;
    scrubber.addEventListener("input", () => player.visit(+scrubber.value));
    play.addEventListener("click", player.toggle);
    byId("back").addEventListener("click", () => player.visit(player.step - 1));
    byId("next").addEventListener("click", () => player.visit(player.step + 1));
    const leap = Math.max(2, Math.round(length / 20));
    document.addEventListener("keydown", (event) => {
      const { target, key } = event;
      if (event.ctrlKey || event.metaKey || event.altKey || target.matches("select")) return;
      if (key === " " && target.matches("button, summary")) return; // it presses that
      const keys = {
        " ": player.toggle,
        ArrowLeft: () => player.visit(player.step - (event.shiftKey ? leap : 1)),
        ArrowRight: () => player.visit(player.step + (event.shiftKey ? leap : 1)),
        PageUp: () => player.visit(player.step - leap),
        PageDown: () => player.visit(player.step + leap),
        Home: () => player.visit(0),
        End: () => player.visit(length - 1),
      };
      if (!(key in keys)) return;
      event.preventDefault();
      keys[key]();
    });
    return player;
  }

  // The task's own time, or as much slower as it takes to see every step and to see anything of a short episode.
  const [EYE, SHORT] = [65, 5]; // most steps a second, least seconds
  function pace(speeds, length, fps) {
    return speeds.filter((s) => s <= 1 && fps * s <= EYE && length / (fps * s) >= SHORT).at(-1) ?? speeds[0];
  }

  const startOf = (hash) => (/^#\d+$/.test(hash) ? +hash.slice(1) : null);

  // Where the address names no step: the most telling one of the first agent, said on the page.
  function open(player, agents) {
    const named = startOf(location.hash);
    if (named !== null) { player.go(named); return; }
    const all = moments(agents[0]);
    const inside = (t) => t > 0 && t < agents[0].mean.length - 1; // at both ends there is less to see
    const [, step, words] = all.find(([, t]) => inside(t)) ?? all[0];
    const whose = agents.length > 1 ? ` (${agents[0].label})` : "";
    byId("opening").textContent = `Opened at step ${whole.format(step)}, where ${words}${whose}. Playing starts at the beginning.`;
    byId("opening").hidden = false;
    player.go(step);
  }

  document.addEventListener("DOMContentLoaded", () => {
    setUpTheme();
    const { agents } = JSON.parse(byId("data").textContent);
    const scales = scalesOf(agents);
    const player = makePlayer(scales.length, agents[0].fps);
    const cards = agents.map((agent) => card(agent, scales, player));
    player.show = (step) => { for (const c of cards) c.show(step); };
    byId("agents").append(...cards.map((c) => c.element));
    byId("agents").dataset.count = agents.length;
    document.querySelector(".transport").hidden = false;
    open(player, agents);

    const layOut = () => { for (const c of cards) c.layOut(); };
    layOut();
    addEventListener("resize", layOut);
    addEventListener("hashchange", () => player.visit(startOf(location.hash) ?? 0));
  });
})();
