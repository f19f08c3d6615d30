// What both pages use. Text from outside only ever becomes a text node.

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export const find = (id) => document.getElementById(id);

const KEY = "bough-key";

/** Fetch with the key, if there is one; an error carries the server's own sentence. */
export async function fetchWithKey(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(KEY);
  // A header holds bytes; `fetch` takes them as the characters of the same numbers.
  if (key) headers["X-API-Key"] = String.fromCharCode(...new TextEncoder().encode(key));
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  const error = new Error(sentence(told.error ?? `The server answered ${response.status}.`));
  error.status = response.status;
  throw error;
}

function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1) + (/[.?!]$/.test(words) ? "" : ".");
}

/** Run `load`; when the server asks for a key, ask the reader for it and run it again. */
export async function withKey(load, failed) {
  const form = find("key-form");
  const wrong = form.querySelector(".error");
  const locked = (yes) => {
    form.hidden = !yes;
    document.body.classList.toggle("locked", yes);
  };
  wrong.textContent = "";
  try {
    await load();
    locked(false);
  } catch (error) {
    if (error.status !== 401) {
      locked(false);
      failed(error);
      return;
    }
    locked(true);
    if (sessionStorage.getItem(KEY)) {
      sessionStorage.removeItem(KEY);
      wrong.textContent = "This key is not the server's.";
    }
    const field = find("key");
    field.focus();
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        sessionStorage.setItem(KEY, field.value);
        withKey(load, failed);
      },
      { once: true },
    );
  }
}
