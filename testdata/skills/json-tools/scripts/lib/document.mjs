import { readFileSync } from "node:fs";

// load reads JSON from an argument: "-" is stdin, text that starts like JSON is itself, all else is a file.
export function load(argument) {
  const inline = /^\s*[[{"]/.test(argument);
  const text = inline ? argument : readFileSync(argument === "-" ? 0 : argument, "utf8");
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch (err) {
    throw new Error(`${inline ? "argument" : argument}: ${err.message}`);
  }
}

export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

// keys returns the keys of an object in code point order.
export function keys(object) {
  return Object.keys(object).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

// run prints the error of main instead of a stack trace.
export function run(main) {
  try {
    process.exitCode = main(process.argv.slice(2));
  } catch (err) {
    console.error(err.message);
    process.exitCode = 1;
  }
}
