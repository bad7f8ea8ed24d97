#!/usr/bin/env node
// Starts the program for this platform, which npm installed as an optional dependency.
"use strict";

const { spawn } = require("node:child_process");

const platform = `@skillsd/${process.platform}-${process.arch}`;
const program = process.platform === "win32" ? "skillsd.exe" : "skillsd";

let path;
try {
  path = require.resolve(`${platform}/${program}`);
} catch {
  console.error(
    `skillsd: the package ${platform} is missing. npm installs it with skillsd, unless optional dependencies ` +
      `are left out (--omit=optional) or there is none for this platform.`,
  );
  process.exit(1);
}

const child = spawn(path, process.argv.slice(2), { stdio: "inherit", windowsHide: true });
const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of signals) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`skillsd: ${path}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  // Ends as the program did.
  for (const name of signals) {
    process.removeAllListeners(name);
  }
  process.kill(process.pid, signal);
});
