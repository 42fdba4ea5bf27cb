// The table of samples: sorted, filtered and paged by the server; a row opens to the text with its tokens' KL.

import { ask } from "/static/watch_api.js";
import { debounced, el, refill } from "/static/watch_dom.js";
import { heat, scale } from "/static/watch_tokens.js";
import { count, number, whole } from "/static/watch_words.js";

const PAGE = 25;
const WAIT_MS = 60; // after the last key in a filter
const COLUMNS = [
  { name: "Step", sort: "step", number: true, show: (one) => whole(one.step) },
  { name: "Split", show: (one) => one.split },
  { name: "KL", sort: "kl", number: true, show: (one) => number(one.kl), has: (one) => one.kl !== null },
  {
    name: "Reward",
    sort: "reward",
    number: true,
    show: (one) => number(one.reward),
    has: (one) => one.reward !== null,
  },
  {
    name: "Gold",
    sort: "gold",
    number: true,
    show: (one) => number(one.gold),
    has: (one) => one.gold !== null && one.gold !== undefined,
  },
  {
    name: "Tokens",
    sort: "length",
    number: true,
    show: (one) => (one.num_tokens ? `${whole(one.num_tokens)}${one.stopped === false ? " …" : ""}` : "–"),
    title: (one) => (one.stopped === false ? "cut off at the length limit" : null),
  },
];

export class SampleTable {
  /** `prompt(sample)` shows a sample's prompt across the steps. */
  constructor(run, page, prompt) {
    this.run = run;
    this.page = page;
    this.prompt = prompt;
    this.sort = "step";
    this.order = "desc";
    this.offset = 0;
    this.total = 0;
    this.known = null; // samples that the server had when the rows were read
    this.shown = [];
    this.opened = new Map(); // of the rows that are open: name of the sample to its detail
    this.asking = null;
    this.reload = debounced(() => this._fromStart(), WAIT_MS);
    this._build();
  }

  path(name) {
    return `/api/runs/${encodeURIComponent(this.run.id)}/${name}`;
  }

  /** Read the rows that the form asks for. */
  async load() {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    await this.page.guarded(async () => {
      const answer = await ask(
        this.path("samples"),
        { ...this._asked(), offset: this.offset, limit: PAGE },
        asking.signal,
      );
      if (this.asking !== asking) return;
      this.shown = answer.samples;
      this.total = answer.total;
      this._draw();
    });
  }

  /** Hear how many samples the run has: new ones come in by themselves where nobody is reading. */
  follow(many, splits) {
    this._offerSplits(splits);
    const news = this.known === null ? 0 : many - this.known;
    if (this.known === null) this.known = many;
    if (news === 0) return;
    const reading = this.opened.size > 0 || this.table.contains(document.activeElement) || this.offset > 0;
    if (!reading) {
      this.known = many;
      this.load();
      return;
    }
    this.news.hidden = false;
    this.news.textContent = news > 0 ? `${count(news, "new sample")}: show` : "The samples have changed: show";
    this.news.onclick = () => {
      this.known = many;
      this.news.hidden = true;
      this.load();
    };
  }

  close() {
    this.asking?.abort();
  }

  // -------------------------------------------------------------- form

  _build() {
    const range = (name, low, high) =>
      el(
        "fieldset",
        {},
        el("legend", {}, name),
        el("input", { type: "number", step: "any", name: low, "aria-label": `${name}, at least`, placeholder: "min" }),
        " – ",
        el("input", { type: "number", step: "any", name: high, "aria-label": `${name}, at most`, placeholder: "max" }),
      );
    this.splits = el("select", { name: "split" }, el("option", { value: "" }, "all"));
    this.form = el(
      "form",
      {
        class: "filters",
        role: "search",
        "aria-label": "Filter the samples",
        input: () => this.reload(),
        submit: (event) => event.preventDefault(),
        reset: () => setTimeout(() => this._fromStart()),
      },
      el(
        "label",
        { class: "wide" },
        el("span", {}, "Search"),
        el("input", { type: "search", name: "search", placeholder: "text of prompt or completion" }),
      ),
      el("label", {}, el("span", {}, "Split"), this.splits),
      range("KL", "min_kl", "max_kl"),
      range("Reward", "min_reward", "max_reward"),
      range("Step", "first_step", "last_step"),
      el("button", { type: "reset", class: "plain" }, "Clear"),
    );
    this.head = el("tr");
    this.body = el("tbody");
    this.table = el("table", { class: "samples" }, el("thead", {}, this.head), this.body);
    this.told = el("p", { class: "hint", role: "status" });
    this.news = el("button", { type: "button", class: "small", hidden: true });
    this.back = el("button", { type: "button", "data-focus": "back", click: () => this._turn(-PAGE) }, "Previous");
    this.next = el("button", { type: "button", "data-focus": "next", click: () => this._turn(PAGE) }, "Next");
    this.element = el(
      "section",
      { id: "samples", "aria-labelledby": "samples-title" },
      el("div", { class: "title" }, el("h2", { id: "samples-title" }, "Samples"), this.told, this.news),
      this.form,
      scale(),
      el("div", { class: "scroll" }, this.table),
      el("div", { class: "pager" }, this.back, this.next),
    );
  }

  _offerSplits(splits) {
    const names = Object.keys(splits);
    if (
      names.join() ===
      [...this.splits.options]
        .slice(1)
        .map((one) => one.value)
        .join()
    )
      return;
    const chosen = this.splits.value;
    this.splits.replaceChildren(
      el("option", { value: "" }, "all"),
      ...names.map((name) => el("option", { value: name }, name)),
    );
    this.splits.value = names.includes(chosen) ? chosen : "";
  }

  _asked() {
    return { ...Object.fromEntries(new FormData(this.form)), sort: this.sort, order: this.order };
  }

  async _fromStart() {
    this.offset = 0;
    this.opened.clear();
    await this.load();
  }

  async _turn(by) {
    this.offset = Math.max(0, this.offset + by);
    this.opened.clear();
    await this.load();
    this.element.scrollIntoView({ block: "start" });
  }

  _sortBy(column) {
    this.order = this.sort === column && this.order === "desc" ? "asc" : "desc";
    this.sort = column;
    this._fromStart();
  }

  // -------------------------------------------------------------- rows

  _draw() {
    const columns = COLUMNS.filter((column) => !column.has || this.shown.some(column.has));
    refill(
      this.head,
      columns.map((column) => this._heading(column)),
      ["Prompt", "Completion"].map((name) => el("th", { scope: "col" }, name)),
    );
    const rows = this.shown.flatMap((sample) => this._rows(sample, columns));
    refill(
      this.body,
      rows.length > 0
        ? rows
        : el("tr", {}, el("td", { colspan: columns.length + 2, class: "nothing" }, "No sample is like this.")),
    );
    const last = Math.min(this.offset + PAGE, this.total);
    this.told.textContent =
      this.total === 0 ? "None" : `${whole(this.offset + 1)}–${whole(last)} of ${whole(this.total)}`;
    this.back.disabled = this.offset === 0;
    this.next.disabled = last >= this.total;
  }

  _heading(column) {
    const kind = column.number ? "number" : null;
    if (!column.sort) return el("th", { scope: "col", class: kind }, column.name);
    const on = this.sort === column.sort;
    const arrow = !on ? "" : this.order === "desc" ? " ↓" : " ↑";
    return el(
      "th",
      { scope: "col", class: kind, "aria-sort": !on ? "none" : this.order === "desc" ? "descending" : "ascending" },
      el(
        "button",
        {
          type: "button",
          class: "plain sort",
          "data-focus": `sort ${column.sort}`,
          click: () => this._sortBy(column.sort),
        },
        column.name,
        el("span", { "aria-hidden": "true" }, arrow),
      ),
    );
  }

  _rows(sample, columns) {
    const name = nameOf(sample);
    const open = this.opened.has(name);
    const button = el("button", {
      type: "button",
      class: "plain opener",
      "aria-expanded": String(open),
      "data-focus": `sample ${name}`,
      "aria-label": `${open ? "Close" : "Open"} the sample of step ${sample.step}: ${sample.completion.slice(0, 80)}`,
    });
    button.append(sample.completion || "(empty)");
    const row = el(
      "tr",
      {
        class: `sample${open ? " open" : ""}`,
        click: (event) => this._toggle(sample, event),
        keydown: (event) => {
          if (event.key === "Escape" && this.opened.has(name)) this._toggle(sample, event);
        },
      },
      columns.map((column) =>
        el("td", { class: column.number ? "number" : null, title: column.title?.(sample) }, column.show(sample)),
      ),
      el("td", { class: "text" }, el("div", {}, sample.prompt)),
      el("td", { class: "text" }, button),
    );
    if (!open) return [row];
    const detail = el(
      "tr",
      {
        class: "detail",
        keydown: (event) => {
          if (event.key === "Escape") this._toggle(sample, event);
        },
      },
      el("td", { colspan: columns.length + 2 }, this.opened.get(name)),
    );
    return [row, detail];
  }

  async _toggle(sample, event) {
    event.stopPropagation();
    const name = nameOf(sample);
    if (this.opened.has(name)) {
      const inside = this.opened.get(name).contains(document.activeElement);
      this.opened.delete(name);
      this._draw();
      if (inside) this._focusOn(name);
      return;
    }
    const detail = el("div", { class: "opened" }, el("p", { class: "hint" }, "Reading the tokens …"));
    this.opened.set(name, detail);
    this._draw();
    if (event.target.closest("button") === null) this._focusOn(name);
    await this.page.guarded(async () => {
      const { split, step, prompt_index, sample_index } = sample;
      const whole = await ask(this.path("sample"), { split, step, prompt_index, sample_index });
      refill(
        detail,
        el("p", { class: "prompt" }, whole.prompt),
        heat(whole),
        el(
          "p",
          { class: "foot" },
          el(
            "button",
            { type: "button", class: "small", click: () => this.prompt(whole) },
            "This prompt across the steps",
          ),
          el("span", { class: "hint" }, whole.stopped === false ? "Cut off at the length limit." : ""),
        ),
      );
    });
  }

  _focusOn(name) {
    [...this.body.querySelectorAll("[data-focus]")]
      .find((one) => one.dataset.focus === `sample ${name}`)
      ?.focus({ preventScroll: true });
  }
}

function nameOf({ split, step, prompt_index, sample_index }) {
  return `${split} ${step} ${prompt_index} ${sample_index}`;
}
