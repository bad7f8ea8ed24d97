#!/usr/bin/env node
// sort-keys.mjs [--compact] JSON|FILE|-: the document with sorted keys.
import { isObject, keys, load, run } from "./lib/document.mjs";

// encode writes the text itself: an object would put keys that look like numbers first, whatever their order.
function encode(value, indent, step) {
  const inner = indent + step;
  const join = (open, items, close) =>
    items.length === 0
      ? open + close
      : step === ""
        ? open + items.join(",") + close
        : `${open}\n${inner}${items.join(`,\n${inner}`)}\n${indent}${close}`;
  if (Array.isArray(value)) {
    return join("[", value.map((item) => encode(item, inner, step)), "]");
  }
  if (isObject(value)) {
    const colon = step === "" ? ":" : ": ";
    return join("{", keys(value).map((k) => JSON.stringify(k) + colon + encode(value[k], inner, step)), "}");
  }
  return JSON.stringify(value);
}

run((args) => {
  const compact = args.includes("--compact");
  const inputs = args.filter((arg) => arg !== "--compact");
  if (inputs.length !== 1) {
    console.error("usage: sort-keys.mjs [--compact] JSON|FILE|-");
    return 2;
  }
  console.log(encode(load(inputs[0]), "", compact ? "" : "  "));
  return 0;
});
