// Runs the tests of pure logic: bundles each for node, then node's own test runner.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const out = mkdtempSync(join(tmpdir(), "console-tests-"));
try {
  const tests = readdirSync(join(root, "tests")).filter((name) => name.endsWith(".test.ts"));
  await esbuild.build({
    entryPoints: tests.map((name) => join(root, "tests", name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  const files = readdirSync(out).map((name) => join(out, name));
  execFileSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
} finally {
  rmSync(out, { recursive: true, force: true });
}
