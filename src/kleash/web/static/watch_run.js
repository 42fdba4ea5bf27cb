// The page of one run: where it stands, its curves and events on one axis of steps, its samples and settings.

import { ask, listen } from "/static/watch_api.js";
import { board } from "/static/watch_board.js";
import { Chart } from "/static/watch_chart.js";
import { Numbers } from "/static/watch_data.js";
import { debounced, el, refill } from "/static/watch_dom.js";
import { EventList, episodes } from "/static/watch_events.js";
import { EventLane } from "/static/watch_lane.js";
import { showPrompt } from "/static/watch_prompt.js";
import { checkpoints, measured, settings } from "/static/watch_facts.js";
import { health, progress } from "/static/watch_runs.js";
import { SampleTable } from "/static/watch_samples.js";
import { Timeline } from "/static/watch_timeline.js";
import { bySeverity, count, date, measuredIn, number, span, whole } from "/static/watch_words.js";

const TOLD = 2; // alarms that the top of the page spells out
const FIRST = 2; // series that are read before anything else: the topmost curve is there at once
const AT_ONCE = 6; // series of a question after that

/** Show a run in `main`; returns how to end it and to colour it anew. */
export function showRun(main, page, id) {
  const view = new RunView(main, page, id);
  view.start();
  return view;
}

class RunView {
  constructor(main, page, id) {
    this.main = main;
    this.page = page;
    this.id = id;
    this.path = `/api/runs/${encodeURIComponent(id)}`;
    this.timeline = new Timeline();
    this.numbers = new Numbers(id);
    this.charts = [];
    this.rest = [];
    this.closer = null; // the series of the zoomed steps with all their points, by key
    this.heard = null; // the newest message of the stream
    this.missed = false; // something may have been while the stream was shut
    this.busy = false;
    this.closed = false;
    this.stop = () => {};
  }

  async start() {
    await this.page.guarded(async () => {
      this.run = await ask(this.path);
      if (this.closed) return;
      this.page.drawn = true;
      this._build();
      this._drawFacts();
      await this._wantCharts(this._keys().slice(0, FIRST));
      this.samples?.load();
      await this._wantCharts();
      if (this.closed) return;
      this._drawTiles();
      this.stop = listen(
        `${this.path}/stream`,
        (news) => this._hear(news),
        (on) => this._connected(on),
      );
    });
  }

  close() {
    this.closed = true;
    this.stop();
    [...this.charts, ...this.rest].forEach((chart) => chart.close());
    this.lane?.close();
    this.samples?.close();
  }

  recolour() {
    [...this.charts, ...this.rest].forEach((chart) => chart.recolour());
  }

  // -------------------------------------------------------------- live

  _connected(on) {
    if (!on) this.missed = true; // the run may have gone back and come further meanwhile
    this.page.connected(on);
  }

  /** One catch-up at a time: what comes in meanwhile is caught up with after it. */
  async _hear(news) {
    this.news = news;
    if (this.busy) return;
    this.busy = true;
    while (this.news !== null && !this.closed) {
      const next = this.news;
      this.news = null;
      await this.page.guarded(() => this._catchUp(next));
    }
    this.busy = false;
  }

  async _catchUp(news) {
    const before = this.heard;
    const unseen = this.missed;
    this.heard = news;
    this.missed = false;
    if (before !== null || news.last_step !== this.numbers.last) {
      this.run = await ask(this.path);
      if (this.closed) return;
      if (this.run.keys.length !== this.drawnKeys) this._buildCharts();
      await this.numbers.want(this._keys());
      await (unseen ? this.numbers.again() : this.numbers.follow(news.last_step));
      this._feed();
      this._drawFacts();
    }
    this.samples?.follow(news.samples, this.run.splits);
    if (this.samples === undefined && news.samples > 0) this._addSamples();
  }

  /** Read the numbers from the top of the page down, and draw each part as soon as it is there. */
  async _wantCharts(keys = this._keys()) {
    for (let at = 0; at < keys.length && !this.closed; at += AT_ONCE) {
      await this.numbers.want(keys.slice(at, at + AT_ONCE));
      this._feed();
    }
  }

  _keys() {
    const about = [...this.charts, ...this.rest].map((chart) => chart.about);
    return [
      ...new Set(about.flatMap((one) => [...one.lines.map((line) => line.key), ...(one.target ? [one.target] : [])])),
    ];
  }

  _feed() {
    const closer = this.timeline.zoom !== null ? this.closer : null;
    const series = (key) => closer?.get(key) ?? this.numbers.get(key);
    for (const chart of [...this.charts, ...this.rest]) {
      chart.feed(series);
      chart.element.hidden = chart.ends === null && chart.about.lines.every((line) => this.numbers.has(line.key));
    }
    this.timeline.redraw();
  }

  /** Zoomed into curves that were thinned out: read these steps with all their points. */
  async _readCloser(zoom) {
    const wasClose = this.closer;
    this.closer = null;
    this.reset.hidden = zoom === null;
    this.zoomed.textContent = zoom === null ? "" : span(zoom[0], zoom[1]);
    if (wasClose) this._feed();
    if (zoom === null || !this.numbers.reduced) return;
    await this.page.guarded(async () => {
      const fine = await this.numbers.closer(Math.floor(zoom[0]), Math.ceil(zoom[1]), this._keys());
      if (this.timeline.zoom !== zoom) return;
      this.closer = new Map([...fine].map(([key, one]) => [key, before(this.numbers.get(key), zoom[0], one)]));
      this._feed();
    });
  }

  // -------------------------------------------------------------- parts

  _build() {
    this.head = el("header", { class: "run-head" });
    this.callout = el("div", { class: "callout" });
    this.tiles = el("dl", { class: "tiles" });
    this.zoomed = el("span", { class: "hint" });
    this.reset = el(
      "button",
      { type: "button", class: "small", hidden: true, click: () => this.timeline.show(null) },
      "All steps",
    );
    this.column = el("div", { class: "column" });
    this.grid = el("div", { class: "columns of-2" });
    this.others = el("div", { class: "columns of-2" });
    this.othersBox = el(
      "details",
      { class: "others", toggle: () => this._toggleRest() },
      el("summary", {}, "Every other number"),
      this.others,
    );
    this.events = new EventList((episode) => this._showEpisode(episode));
    this.lane = new EventLane(this.timeline, (key) => this.events.open(key));
    this.saved = el("div");
    this.curves = el(
      "section",
      { id: "curves", "aria-labelledby": "curves-title" },
      el("div", { class: "title" }, el("h2", { id: "curves-title" }, "Curves"), this.zoomed, this.reset),
      this.lane.element,
      this.column,
    );
    this.samplesAt = el("div");
    this.main.replaceChildren(
      this.head,
      this.callout,
      this.tiles,
      el("div", { class: "run-body" }, this.curves, this.events.element),
      el("section", { id: "details", "aria-label": "More curves" }, this.grid, this.othersBox),
      this.samplesAt,
      this.saved,
      ...[measured(this.run), settings(this.run.settings ?? {})].filter(Boolean),
    );
    const closer = debounced((zoom) => this._readCloser(zoom), 60);
    this.timeline.listeners.add(closer);
    this._buildCharts();
    if (Object.keys(this.run.splits ?? {}).length > 0) this._addSamples();
  }

  _buildCharts() {
    [...this.charts, ...this.rest].forEach((chart) => chart.close());
    this.drawnKeys = this.run.keys.length;
    this.board = board(this.run);
    const make = (about) => new Chart(about, this.timeline);
    const main = this.board.main.map(make);
    const more = this.board.more.map(make);
    this.charts = [...main, ...more];
    this.rest = [];
    refill(
      this.column,
      main.map((chart) => chart.element),
      main.length === 0 ? el("p", { class: "nothing" }, "No step has been recorded yet.") : null,
    );
    refill(
      this.grid,
      more.map((chart) => chart.element),
    );
    this.othersBox.hidden = this.board.rest.length === 0;
    if (this.othersBox.open) this._toggleRest();
  }

  async _toggleRest() {
    this.rest.forEach((chart) => chart.close());
    this.rest = this.othersBox.open ? this.board.rest.map((about) => new Chart(about, this.timeline)) : [];
    refill(
      this.others,
      this.rest.map((chart) => chart.element),
    );
    await this.page.guarded(() => this._wantCharts());
  }

  _addSamples() {
    this.samples = new SampleTable(this.run, this.page, (sample) => showPrompt(this.id, sample, this.page));
    this.samplesAt.replaceChildren(this.samples.element);
    this.samples.follow(
      Object.values(this.run.splits).reduce((sum, many) => sum + many, 0),
      this.run.splits,
    );
  }

  _showEpisode({ first, last }) {
    const [, end] = this.timeline.all;
    const room = Math.max(5, Math.round(((last ?? end) - first) * 0.5));
    this.timeline.show([first - room, (last ?? end) + room]);
    this.curves.scrollIntoView({ block: "start" });
  }

  // -------------------------------------------------------------- facts

  _drawFacts() {
    const { run } = this;
    document.title = `${run.name} · Kleash watch`;
    refill(
      this.head,
      el("h2", {}, run.name),
      health(run.health),
      progress(run),
      el(
        "p",
        { class: "hint" },
        [
          run.algorithm,
          run.model,
          run.source === "kleash" ? "" : `log of ${run.source}`,
          run.started ? `started ${date(run.started)}` : "",
          run.status === "running" && run.updated ? `last written ${date(run.updated)}` : "",
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      el(
        "nav",
        { "aria-label": "Parts of the page" },
        ["curves", "events", "samples", "checkpoints", "settings"].map((part) =>
          el(
            "button",
            { type: "button", class: "plain small", "data-focus": `to ${part}`, click: () => jump(part) },
            part,
          ),
        ),
      ),
    );
    const told = run.alarms.toSorted(bySeverity);
    const left = told.length - TOLD;
    refill(
      this.callout,
      told
        .slice(0, TOLD)
        .map((alarm) => el("p", { class: alarm.severity }, health(alarm.severity), " ", alarm.message)),
      left > 0
        ? el(
            "button",
            { type: "button", class: "plain small", "data-focus": "more", click: () => jump("events") },
            `and ${count(left, "more alarm")}`,
          )
        : null,
      run.reason && run.status !== "finished" && run.status !== "running"
        ? el("p", {}, `${run.status}: ${run.reason}`)
        : null,
    );
    this._drawTiles();
    const found = episodes(run.events ?? []);
    this.events.draw(found);
    this.timeline.windows = run.windows ?? [];
    this.lane.feed(found, run.checkpoints ?? []);
    this.timeline.redraw();
    refill(this.saved, checkpoints(run.checkpoints ?? []));
  }

  _drawTiles() {
    const latest = this.run.latest ?? {};
    const tile = (name, value, unit) =>
      value === null || value === undefined
        ? null
        : el("div", {}, el("dt", {}, name), el("dd", {}, number(value)), el("dd", { class: "small" }, unit));
    const target = this.numbers.get("control/target").values.at(-1);
    refill(
      this.tiles,
      tile("KL to the reference", latest.kl, `${latest.kl_unit} · ${measuredIn(latest.kl_key, latest.kl_step)}`),
      tile("Target", target, targetUnit(this.run.target_key)),
      tile("Beta", latest.beta, "reward per nat"),
      tile("Reward", latest.reward, measuredIn(latest.reward_key, latest.reward_step)),
      el(
        "div",
        {},
        el("dt", {}, "Steps"),
        el("dd", {}, whole(this.run.steps)),
        el("dd", { class: "small" }, this.run.planned ? `of ${whole(this.run.planned)}` : ""),
      ),
    );
  }
}

function targetUnit(key) {
  return key === null || key === undefined ? "" : key.endsWith("per_token") ? "nats per token" : "nats per sequence";
}

/** The coarse points before a step, and the fine ones from there on. */
function before(coarse, first, fine) {
  const until = coarse.steps.findIndex((step) => step >= first);
  const many = until < 0 ? coarse.steps.length : until;
  const joined = (name) => [...coarse[name].slice(0, many), ...(fine[name] ?? [])];
  return { steps: joined("steps"), values: joined("values"), stderr: joined("stderr") };
}

function jump(part) {
  const found = document.getElementById(part);
  found?.scrollIntoView({ block: "start" });
  const first = found?.querySelector("h2, h3");
  first?.setAttribute("tabindex", "-1");
  first?.focus({ preventScroll: true });
}
