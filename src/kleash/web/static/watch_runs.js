// The list of runs: their health, where they stand, and which of them to lay over one another.

import { ask, listen } from "/static/watch_api.js";
import { debounced, el, refill } from "/static/watch_dom.js";
import { HEALTH, bySeverity, count, date, measuredIn, number, whole } from "/static/watch_words.js";

const ORDER = { critical: 0, unreadable: 1, warning: 2, ok: 3, "not watched": 3 };
const TOLD = 1; // alarms of a run whose message is in the list
const ticked = new Set(); // ids in the order of ticking; they stay ticked while a run is looked at

/** Show the list in `main`; returns how to end it. */
export function showRuns(main, page) {
  const filter = el("input", {
    type: "search",
    id: "run-filter",
    placeholder: "Filter by name, model, algorithm",
    "aria-label": "Filter the runs by name, model or algorithm",
    input: () => draw(),
  });
  const compare = el("a", { class: "button", "data-focus": "compare" });
  const summary = el("p", { class: "hint", id: "runs-summary" });
  const body = el("tbody");
  let runs = [];

  main.replaceChildren(
    el("div", { class: "title" }, el("h2", {}, "Runs"), summary, el("div", { class: "tools" }, filter, compare)),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "runs" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, el("span", { class: "spoken" }, "Overlay")),
            ["Health", "Run", "How", "Progress"].map((name) => el("th", { scope: "col" }, name)),
            ["KL", "Reward", "Beta"].map((name) => el("th", { scope: "col", class: "number" }, name)),
            el("th", { scope: "col" }, "Started"),
          ),
        ),
        body,
      ),
    ),
  );

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = runs.filter((run) =>
      [run.name, run.model, run.algorithm, run.source, run.path].some((text) =>
        (text ?? "").toLowerCase().includes(wanted),
      ),
    );
    refill(
      body,
      shown.map((run) => row(run, tick)),
    );
    if (runs.length === 0)
      refill(
        body,
        el(
          "tr",
          {},
          el(
            "td",
            { colspan: 9, class: "nothing" },
            "No run here yet. This page shows one as soon as it has written its first step.",
          ),
        ),
      );
    else if (shown.length === 0)
      refill(body, el("tr", {}, el("td", { colspan: 9, class: "nothing" }, "No run matches the filter.")));
    const running = runs.filter((run) => run.status === "running").length;
    const alarmed = runs.filter((run) => run.alarms.length > 0).length;
    summary.textContent = `${count(runs.length, "run")}, ${running} running, ${alarmed} with an alarm`;
    offer();
  }

  function tick(id, on) {
    if (on) ticked.add(id);
    else ticked.delete(id);
    offer();
  }

  function offer() {
    const chosen = [...ticked].filter((id) => runs.some((run) => run.id === id));
    compare.textContent = chosen.length < 2 ? "Tick runs to overlay them" : `Overlay ${chosen.length} runs`;
    compare.toggleAttribute("data-off", chosen.length < 2);
    if (chosen.length < 2) compare.removeAttribute("href");
    else compare.setAttribute("href", `#/compare/${chosen.map(encodeURIComponent).join(",")}`);
  }

  async function load() {
    await page.guarded(async () => {
      runs = (await ask("/api/runs")).runs.toSorted(byUrgency);
      page.drawn = true;
      draw();
    });
  }

  offer();
  load();
  const close = listen("/api/stream", debounced(load, 150), page.connected);
  return { close, recolour() {} };
}

/** Running ones first, then those in trouble, then the newest. */
function byUrgency(one, other) {
  const live = (run) => (run.status === "running" ? 0 : 1);
  return (
    live(one) - live(other) ||
    ORDER[one.health] - ORDER[other.health] ||
    (other.started ?? "").localeCompare(one.started ?? "") ||
    one.name.localeCompare(other.name)
  );
}

export function health(kind) {
  const { mark, word } = HEALTH[kind] ?? HEALTH.unreadable;
  const tone = kind === "not watched" ? "info" : kind; // neutral: neither good nor bad
  return el("span", { class: `health ${tone}` }, el("span", { class: "mark", "aria-hidden": "true" }, mark), word);
}

function row(run, tick) {
  const latest = run.latest ?? {};
  const box = el("input", {
    type: "checkbox",
    "data-focus": `tick ${run.id}`,
    "aria-label": `Overlay ${run.name}`,
    change: (event) => tick(run.id, event.target.checked),
  });
  box.checked = ticked.has(run.id);
  box.disabled = run.health === "unreadable";
  const told = run.problem ? [run.problem] : run.alarms.toSorted(bySeverity).map((alarm) => alarm.message);
  return el(
    "tr",
    { "data-run": run.id },
    el("td", {}, box),
    el("td", {}, health(run.health)),
    el(
      "td",
      { class: "what" },
      run.health === "unreadable" ? el("b", { title: run.path }, run.name) : link(run),
      told.slice(0, TOLD).map((text) => el("p", { class: "told" }, text)),
      told.length > TOLD ? el("p", { class: "told" }, `and ${count(told.length - TOLD, "more alarm")}`) : null,
    ),
    el(
      "td",
      { class: "how" },
      [run.algorithm, run.model].filter(Boolean).join(" · "),
      run.source === "kleash" ? null : el("p", { class: "told" }, `log of ${run.source}`),
    ),
    el("td", {}, progress(run)),
    el("td", { class: "number", "data-label": "KL" }, number(latest.kl), el("small", {}, latest.kl_unit ?? ""), heldOut(latest, "kl")),
    el("td", { class: "number", "data-label": "Reward" }, number(latest.reward), heldOut(latest, "reward")),
    el("td", { class: "number", "data-label": "Beta" }, number(latest.beta)),
    el("td", { class: "when" }, date(run.started)),
  );
}

/** Where a number comes from if training does not measure it. */
function heldOut(latest, name) {
  const key = latest[`${name}_key`];
  return key?.startsWith("eval/") ? el("small", {}, measuredIn(key, latest[`${name}_step`])) : null;
}

function link(run) {
  const href = `#/run/${encodeURIComponent(run.id)}`;
  return el("a", { href, "data-focus": `open ${run.id}`, title: run.path }, run.name);
}

export function progress(run) {
  const planned = run.planned ? ` of ${whole(run.planned)}` : "";
  return el(
    "div",
    { class: "progress" },
    el("span", { title: run.reason || null }, `${run.status} · ${whole(run.steps)}${planned}`),
    run.planned && run.status === "running"
      ? el("progress", { max: run.planned, value: Math.min(run.steps, run.planned), "aria-label": "Steps done" })
      : null,
  );
}
