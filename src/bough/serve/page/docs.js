// The API page: /openapi.json and /tasks in words.
import { fetchWithKey, find, make, withKey } from "/page/common.js";

async function load() {
  const schema = await (await fetchWithKey("/openapi.json")).json();
  const facts = await (await fetchWithKey("/tasks")).json();
  const texts = ["A fine film.", ["One text.", "Another text."]].filter((text) =>
    Object.values(facts.tasks).some((task) => task.texts === [text].flat().length),
  );
  const key = schema.components?.securitySchemes ? ' -H "X-API-Key: $KEY"' : "";
  find("curl").textContent =
    `curl ${location.origin}/predict -H "Content-Type: application/json"${key} \\\n` +
    `  -d '${JSON.stringify({ texts })}'`;
  const limits = bodyOf(schema.paths["/predict"].post);
  const most = limits.properties.texts.maxItems;
  const longest = first(limits, "maxLength");
  find("limits").textContent =
    `A request has at most ${count(most)} texts, a text at most ${count(longest)} characters.`;
  find("tasks").replaceChildren(
    row("th", "task", "reads", "answers"),
    ...Object.entries(facts.tasks).map(([name, task]) =>
      row("td", name, task.texts === 2 ? "a pair" : "one text", answers(task)),
    ),
  );
  const sections = Object.entries(schema.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(path, method, operation)),
  );
  find("paths").replaceChildren(...sections);
  const asked = await fetchWithKey("/predict", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ texts }),
  });
  find("answer").textContent = JSON.stringify(await asked.json(), null, 1);
}

const bodyOf = (operation) => operation.requestBody?.content["application/json"].schema;
const count = (number) => number.toLocaleString("en");

/** The first value of this key, however deep. */
function first(schema, key) {
  if (schema === null || typeof schema !== "object") return undefined;
  if (key in schema) return schema[key];
  return Object.values(schema).map((inner) => first(inner, key)).find((found) => found !== undefined);
}

function answers(task) {
  if (task.range) return `a number from ${task.range[0]} to ${task.range[1]}`;
  const some = task.labels.slice(0, 12).join(", ");
  return task.labels.length > 12 ? `${some}, … (${task.labels.length} labels)` : some;
}

const row = (tag, ...cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));

function section(path, method, operation) {
  const statuses = Object.entries(operation.responses).map(([status, response]) =>
    row("td", status, response.description),
  );
  const body = bodyOf(operation);
  return make(
    "section",
    { class: "panel" },
    make("h2", {}, make("code", {}, `${method.toUpperCase()} ${path}`)),
    make("p", {}, operation.description ?? operation.summary),
    make("table", {}, ...statuses),
    body &&
      make("details", {}, make("summary", {}, "Schema of the body"), make("pre", {}, JSON.stringify(body, null, 1))),
  );
}

withKey(load, (error) => {
  find("error").textContent = error.message;
});
