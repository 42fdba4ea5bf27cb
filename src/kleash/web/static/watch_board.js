// Which charts a run gets: those whose numbers it has. A KL keeps its own unit and estimator, and its own chart.

export const PER_SEQUENCE = [
  "kl/exact_per_sequence",
  "kl/k1_per_sequence",
  "kl/k3_per_sequence",
  "kl/k2_per_sequence",
  "kl/unstated_per_sequence",
];
export const PER_TOKEN = [
  "kl/exact_per_token",
  "kl/k1_per_token",
  "kl/k3_per_token",
  "kl/k2_per_token",
  "kl/unstated_per_token",
];
const CLASSES = ["word", "punctuation", "whitespace", "digit", "special", "stop"];

const line = (key, label, tone, stroke = "solid") => ({ key, label, tone, stroke });

/** The first of `candidates` that is measured in training or held out, as both lines. */
function both(keys, candidates, tone) {
  const key = candidates.find((one) => keys.has(one) || keys.has(`eval/${one}`));
  if (key === undefined) return [];
  return [line(key, "training", tone), line(`eval/${key}`, "held out", keys.has(key) ? "quiet" : tone, "dots")];
}

/** The charts that share one column, from top to bottom. */
function timeline(keys, run) {
  const held = (candidates) => (candidates.includes(run.target_key) ? "control/target" : null);
  return [
    {
      title: "KL to the reference, per sequence",
      lines: both(keys, PER_SEQUENCE, "drift"),
      zero: true,
      height: 210,
      target: held(PER_SEQUENCE),
    },
    {
      title: "KL to the reference, per token",
      lines: both(keys, PER_TOKEN, "drift"),
      zero: true,
      height: PER_SEQUENCE.some((key) => keys.has(key)) && !held(PER_TOKEN) ? 110 : 210,
      target: held(PER_TOKEN),
    },
    { title: "Beta, the price of a nat", lines: [line("control/beta", "beta", "quiet")], zero: true, height: 90 },
    {
      title: "Reward",
      height: 160,
      lines: [
        line("reward/proxy", "proxy", "reward"),
        line("reward/gold", "gold", "gold", "dashed"),
        line("eval/reward/proxy", "proxy, held out", "reward", "dots"),
        line("eval/reward/gold", "gold, held out", "gold", "dots"),
      ],
    },
    {
      title: "Drift of both texts of a comparison",
      zero: true,
      height: 150,
      lines: [
        line("preference/chosen_drift", "chosen", "reward"),
        line("preference/rejected_drift", "rejected", "drift"),
        line("eval/preference/chosen_drift", "chosen, held out", "reward", "dots"),
        line("eval/preference/rejected_drift", "rejected, held out", "drift", "dots"),
      ],
    },
    { title: "Accuracy: chosen above rejected", lines: both(keys, ["preference/accuracy"], "reward"), height: 110 },
    { title: "Entropy of the next token", lines: both(keys, ["entropy/per_token"], "reward"), zero: true, height: 110 },
    { title: "Reply length", lines: both(keys, ["length/mean"], "reward"), zero: true, height: 110 },
    {
      title: "KL by class of token",
      stacked: true,
      zero: true,
      height: 150,
      lines: CLASSES.map((name, at) => line(classKey(keys, name), name === "word" ? "words" : name, `c${at + 1}`)),
    },
  ];
}

function classKey(keys, name) {
  return keys.has(`kl/class_${name}`) ? `kl/class_${name}` : `eval/kl/class_${name}`;
}

/** The charts that stand side by side below. */
function details(keys) {
  const pair = (title, key, tone = "reward") => ({ title, lines: both(keys, [key], tone) });
  return [
    { title: "Loss", lines: both(keys, ["loss/preference", "loss/sft"], "reward") },
    pair("Margin: chosen minus rejected", "preference/margin"),
    pair("Distinct word pairs", "text/distinct_2"),
    pair("Repeated runs of four", "text/repeated_4gram", "drift"),
    pair("Replies that end by themselves", "length/stop_rate"),
    {
      title: "The tokens that drift most",
      zero: true,
      lines: [
        line("kl/token_max", "largest", "drift", "dashed"),
        line("kl/token_p99", "99 %", "drift"),
        line("kl/token_p95", "95 %", "quiet"),
      ],
    },
    { title: "Importance ratio, largest", lines: [line("ratio/max", "policy / behavior", "drift")] },
    { title: "Clip fraction", lines: [line("ratio/clip_fraction", "clipped", "quiet")], zero: true },
    { title: "Gradient norm", lines: [line("optim/grad_norm", "before clipping", "quiet")], zero: true },
    { title: "Spread of rewards within a group", lines: [line("reward/group_sd", "sd", "reward")], zero: true },
  ];
}

/** The sections of a run's page. What no chart names is drawn one key a chart, and only when it is asked for. */
export function board(run) {
  const about = new Map(run.keys.map((entry) => [entry.key, entry]));
  const keys = new Set(about.keys());
  const known = (charts) => charts.map((chart) => present(chart, keys, about)).filter((chart) => chart !== null);
  const main = known(timeline(keys, run));
  const more = known(details(keys));
  const shown = new Set([...main, ...more].flatMap((chart) => [...chart.lines.map((one) => one.key), chart.target]));
  const rest = run.keys
    .filter((entry) => !shown.has(entry.key))
    .map((entry) => ({
      title: entry.title,
      lines: [line(entry.key, entry.key, entry.key.includes("kl/") ? "drift" : "quiet")],
    }));
  return { main, more, rest: known(rest) };
}

/** A chart with the lines that there are, its unit and what it means; null where nothing is left. */
function present(chart, keys, about) {
  const lines = chart.lines.filter((one) => keys.has(one.key));
  if (lines.length === 0) return null;
  const first = about.get(lines[0].key);
  const bare = lines[0].key.replace(/^eval\//, "");
  const kept = /^kl\/(k[123]|unstated)_/.test(bare) ? `${first.title}. ` : "";
  const target = chart.target && keys.has(chart.target) ? chart.target : null;
  return {
    height: 130,
    zero: false,
    stacked: false,
    ...chart,
    lines,
    target,
    unit: first.unit,
    meaning: `${kept}${first.meaning}${first.high ? ` High: ${first.high}.` : ""}`,
  };
}
