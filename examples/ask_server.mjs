// Ask a server from JavaScript: in node as it is, in a page without the first line of code.
//
//     bough serve runs/two-tasks &
//     node examples/ask_server.mjs [ADDRESS]

const address = process.argv[2] ?? "http://127.0.0.1:8000";

/** Answers in the order of the texts; a pair is a list of two. */
async function ask(texts, more = {}) {
  const response = await fetch(`${address}/predict`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ texts, ...more }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error); // one sentence
  return body.answers;
}

const { tasks } = await (await fetch(`${address}/tasks`)).json();
const texts = ["The old tree is green.", "What is very good?"];
for (const [name, task] of Object.entries(tasks)) {
  const asked = task.texts === 2 ? texts.map((text) => [text, "Who does grow?"]) : texts;
  const answers = await ask(asked, { tasks: [name] });
  asked.forEach((text, number) => console.log(name, JSON.stringify(text), JSON.stringify(answers[number][name])));
}
