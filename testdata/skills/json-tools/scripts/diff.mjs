#!/usr/bin/env node
// diff.mjs OLD NEW: one line a difference, by JSON Pointer.
import { isObject, keys, load, run } from "./lib/document.mjs";

const pointer = (path, key) => `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
const show = (value) => JSON.stringify(value);

function* differences(a, b, path) {
  const arrays = Array.isArray(a) && Array.isArray(b);
  if (!arrays && !(isObject(a) && isObject(b))) {
    if (show(a) !== show(b)) yield `~ ${path || "/"}: ${show(a)} -> ${show(b)}`;
    return;
  }
  const names = arrays ? [...Array(Math.max(a.length, b.length)).keys()] : keys({ ...a, ...b });
  for (const name of names) {
    const at = pointer(path, name);
    if (!Object.hasOwn(b, name)) yield `- ${at}: ${show(a[name])}`;
    else if (!Object.hasOwn(a, name)) yield `+ ${at}: ${show(b[name])}`;
    else yield* differences(a[name], b[name], at);
  }
}

run((args) => {
  if (args.length !== 2) {
    console.error("usage: diff.mjs OLD NEW");
    return 2;
  }
  const lines = [...differences(load(args[0]), load(args[1]), "")];
  for (const line of lines) console.log(line);
  return lines.length === 0 ? 0 : 1;
});
