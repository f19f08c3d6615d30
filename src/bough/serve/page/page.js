// The page: ask about a text or a pair, see every task's answer, and what the plan made of it.
import { fetchWithKey, find, make, withKey } from "/page/common.js";

const SHOWN = 8; // bars of a card; the others can be opened
const form = find("form");
const first = find("first");
const second = find("second");
let facts = null; // what /tasks tells
let asked = []; // sets of tasks that read the same text in the last answer
let pending = null; // stops the question before

// Facts.

async function load() {
  const answer = await (await fetchWithKey("/tasks")).json();
  const drawing = await (await fetchWithKey("/plan.svg")).text();
  facts = answer;
  find("model").textContent = facts.model;
  document.title = `bough: ${facts.model}`;
  const svg = new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement;
  drawPicture(document.importNode(svg, true));
  drawForm();
  drawChoice();
}

const names = (texts) => Object.keys(facts.tasks).filter((name) => facts.tasks[name].texts === texts);

function drawForm() {
  const pairs = names(2);
  find("second-part").hidden = pairs.length === 0;
  find("second-hint").textContent = names(1).length
    ? `(for ${listed(pairs)})`
    : "(every task here judges two)";
  const buttons = facts.examples.map((example) => {
    const texts = [example].flat();
    const button = make("button", { type: "button", title: texts.join("\n") }, texts.join(" · "));
    button.addEventListener("click", () => {
      [first.value, second.value] = [texts[0], texts[1] ?? ""];
      ask();
    });
    return button;
  });
  find("examples").replaceChildren(...buttons);
}

// Asking.

async function ask() {
  if (facts === null) return;
  const [one, two] = [first.value.trim(), second.value.trim()];
  pending?.abort();
  const wrong = mistake(one, two);
  complain(wrong?.words ?? "", wrong?.field);
  find("ask").removeAttribute("aria-disabled");
  if (wrong) return;
  const read = reading(one, two);
  pending = new AbortController();
  const { signal } = pending;
  find("ask").setAttribute("aria-disabled", "true");
  const began = performance.now();
  try {
    const response = await fetchWithKey("/predict", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ texts: read.map((item) => item.text) }),
      signal,
    });
    const { answers } = await response.json();
    tellTime(performance.now() - began, response.headers.get("Server-Timing") ?? "");
    drawAnswers(read, answers, Boolean(two));
    tellWork(Boolean(two));
  } catch (error) {
    if (error.name === "AbortError") return;
    complain(error.message);
    if (error.status === 401) begin(); // the key has changed
  }
  find("ask").removeAttribute("aria-disabled");
}

function mistake(one, two) {
  if (!one && !two) return { words: "Write a text first.", field: first };
  if (!one) return { words: "The first text is empty.", field: first };
  if (!two && names(1).length === 0) {
    return { words: "Every task of this model judges two texts: write the second one, too.", field: second };
  }
  return null;
}

/** What is sent: the text; or the pair, and each of its texts where a task judges one text. */
function reading(one, two) {
  if (!two) return [{ title: "", text: one }];
  const both = [{ title: "Both texts", text: [one, two] }];
  if (names(1).length === 0) return both;
  return [...both, { title: "First text", text: one }, { title: "Second text", text: two }];
}

function complain(words, field) {
  find("error").textContent = words;
  if (words) find("answers").replaceChildren();
  if (words) find("took").textContent = "";
  for (const each of [first, second]) each.setAttribute("aria-invalid", String(each === field));
  field?.focus();
}

function tellTime(whole, timing) {
  const spent = Object.fromEntries(
    [...timing.matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, number]) => [name, Number(number)]),
  );
  const own = spent.model === undefined ? "" : `, ${milliseconds(spent.model)} in the model`;
  find("took").textContent = `${milliseconds(whole)}${own}`;
}

const milliseconds = (number) => `${number < 10 ? number.toFixed(1) : number.toFixed(0)} ms`;

// Answers.

function drawAnswers(read, answers, paired) {
  const [whole, ...each] = read.map(({ title, text }, number) => {
    const cards = Object.entries(answers[number]).map(([name, answer]) => card(name, answer, text));
    if (!paired) cards.push(...names(2).map(missing));
    const words = title && typeof text === "string" ? make("span", {}, ` ${shorten(text)}`) : null;
    return make(
      "section",
      { class: "read" },
      title ? make("h2", {}, title, words) : null,
      make("div", { class: "cards" }, ...cards),
    );
  });
  const place = find("answers");
  place.replaceChildren(whole, ...(each.length ? [make("div", { class: "each" }, ...each)] : []));
  colourCards();
  if (place.getBoundingClientRect().top > innerHeight - 120) place.scrollIntoView({ block: "center" });
}

/** By its kind: what a card says in a word, and its body. */
const kinds = {
  classify: (answer, task) => [answer.label, bars(answer, task.labels, [answer.label])],
  ordinal: (answer, task) => [answer.label, bars(answer, task.labels, [answer.label])],
  multilabel: (answer, task) => [answer.labels.join(", ") || "none", bars(answer, task.labels, answer.labels)],
  regress: (answer, task) => [answer.value.toFixed(2), task.range ? scale(answer.value, task.range) : []],
  tag: (answer, task, text) => [
    answer.spans.length === 1 ? "1 span" : `${answer.spans.length} spans`,
    [marked(text, answer.spans, task.labels)],
  ],
};

function card(name, answer, text) {
  const task = facts.tasks[name];
  const [said, body] = kinds[task.kind](answer, task, text);
  const head = make("header", {}, make("h3", {}, name), make("span", { class: "said" }, said));
  const cut = answer.cut
    ? make("p", { class: "pale cut" }, `Only the first ${facts.longest} tokens were read.`)
    : null;
  const node = make("article", { class: "panel card", "data-task": name }, head, ...body, cut);
  node.addEventListener("mouseenter", () => show(name));
  node.addEventListener("mouseleave", () => show(chosen()));
  return node;
}

function missing(name) {
  const head = make("header", {}, make("h3", {}, name));
  const words = make("p", {}, "Needs a second text.");
  return make("article", { class: "panel card", "data-task": name }, head, words);
}

/** The text with its spans marked; offsets count characters, of which some are two to JavaScript. */
function marked(text, spans, labels) {
  const signs = [...text];
  const part = (start, end) => signs.slice(start, end).join("");
  const nodes = [];
  let at = 0;
  for (const { start, end, label, score } of spans) {
    const share = `${(100 * score).toFixed(0)}\u00a0%`;
    const mark = make("mark", { title: `${label}, ${share}` }, part(start, end), make("small", {}, label));
    mark.style.setProperty("--turn", labels.indexOf(label) / labels.length);
    nodes.push(part(at, start), mark);
    at = end;
  }
  return make("p", { class: "marked" }, ...nodes, part(at, signs.length));
}

function bars(answer, labels, held) {
  const many = labels.length > SHOWN;
  const ordered = many
    ? [...labels].sort((a, b) => answer.probabilities[b] - answer.probabilities[a])
    : labels;
  const rows = ordered.map((label) => barRow(label, answer.probabilities[label], held.includes(label)));
  if (!many) return [make("dl", { class: "bars" }, ...rows)];
  const rest = make("details", { class: "more" }, make("summary", {}, `${labels.length - SHOWN} more`));
  rest.append(make("dl", { class: "bars" }, ...rows.slice(SHOWN)));
  return [make("dl", { class: "bars" }, ...rows.slice(0, SHOWN)), rest];
}

function barRow(label, share, best) {
  const kind = best ? "best" : undefined;
  return make(
    "div",
    {},
    make("dt", { class: kind }, ...broken(label)),
    make("dd", { "aria-hidden": "true" }, bar(share)),
    make("dd", { class: best ? "share best" : "share" }, `${(100 * share).toFixed(1)}\u00a0%`),
  );
}

function scale(value, [low, high]) {
  const ends = make("div", { class: "scale" }, make("span", {}, `${low}`), make("span", {}, `${high}`));
  ends.setAttribute("aria-label", `on a scale from ${low} to ${high}`);
  ends.setAttribute("role", "note");
  const line = bar((value - low) / (high - low));
  line.setAttribute("aria-hidden", "true");
  return [line, ends];
}

function bar(share) {
  const inside = make("span");
  inside.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("div", { class: "bar" }, inside);
}

// The plan.

const boxes = () => [...find("picture").querySelectorAll("[data-tasks]")];
/** A box's tasks, in groups that share activations. */
const groups = (box) => box.dataset.tasks.split("|").map((group) => group.split(" "));
const chosen = () => document.querySelector("#tasks [aria-pressed=true]")?.dataset.task ?? "";

/** As wide as there is room, and scrolled sideways rather than too small to read. */
function drawPicture(svg) {
  svg.style.minWidth = `${0.75 * svg.getAttribute("width")}px`;
  const place = find("picture");
  place.replaceChildren(svg);
  if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
}

function drawChoice() {
  const buttons = ["", ...Object.keys(facts.tasks)].map((name) => {
    const button = make("button", { type: "button", "data-task": name }, name || "all tasks");
    button.addEventListener("click", () => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
      show(name);
    });
    button.setAttribute("aria-pressed", String(name === ""));
    return button;
  });
  find("tasks").replaceChildren(...buttons);
}

/** Fade what this task does not use; without a task, what the last answer did not use, and
 * mark what it computed once for several tasks. */
function show(name) {
  const walks = name ? [walked([name])] : asked.map(walked);
  for (const box of boxes()) {
    const users = (walk) => groups(box).map((group) => group.filter((task) => walk.has(task)).length);
    const most = Math.max(...walks.map((walk) => Math.max(...users(walk))));
    box.classList.toggle("away", most === 0);
    box.classList.toggle("once", !name && most > 1);
  }
}

/** The tasks, and those whose heads they read. */
function walked(tasks) {
  return new Set(tasks.flatMap((task) => [task, ...facts.tasks[task].reads]));
}

function tellWork(paired) {
  const forms = paired ? ["pair", "twins", "text"] : ["text"];
  const parts = forms.filter((form) => facts.work[form]).map((form) => ({ form, ...facts.work[form] }));
  asked = parts.map((work) => work.tasks);
  const legend = make("p", { class: "pale" }, "Thick frames: computed once for several tasks.");
  const shared = parts.some((work) => work.parts.some(({ tasks }) => tasks.length > 1));
  find("work").replaceChildren(...parts.flatMap((work) => told(work, paired)), shared ? legend : "");
  show(chosen());
}

function told({ form, steps, alone, parts }, paired) {
  const forms = { pair: "The pair", twins: "Each text of the pair", text: paired ? "Each text" : "The text" };
  const what = forms[form];
  const saved = alone > steps ? ` instead of ${alone}` : "";
  const lines = parts.map(({ tasks, places }) => {
    const together = tasks.length > 1;
    const words = together ? `once for ${listed(tasks)}: ` : `for ${tasks[0]}: `;
    return make("li", {}, together ? make("strong", {}, words) : words, ...spaced(places));
  });
  return [make("p", {}, `${what} took ${steps} steps${saved}:`), make("ul", {}, ...lines)];
}

/** "a, b, c", broken between places only. */
function spaced(places) {
  return places.flatMap((place, number) => [number ? ", " : "", make("span", { class: "place" }, place)]);
}

/** A class's name, which may go on in the next line behind a _ rather than anywhere. */
function broken(name) {
  return name.split(/(?<=_)/).flatMap((part, number) => (number ? [make("wbr"), part] : [part]));
}

/** Cards have the colour of their task's head in the picture, which has two sets of colours. */
function colourCards() {
  for (const node of document.querySelectorAll(".card")) {
    const head = boxes().find((b) => b.classList.contains("head") && b.dataset.tasks === node.dataset.task);
    if (head) node.style.setProperty("--hue", getComputedStyle(head).stroke);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colourCards);

// Words.

function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

const shorten = (text) => (text.length > 60 ? `${text.slice(0, 57)}…` : text);

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    ask();
  }
});
const begin = () => withKey(load, (error) => complain(error.message));
begin();
