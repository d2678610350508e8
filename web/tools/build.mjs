// Builds the console into the server's package: bundles with digests in their names, licences, a size check.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync, existsSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const MOST_GZIP_BYTES = 300_000;
const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const out = join(root, "..", "src", "slicemill", "server", "console");
const run = (tool, ...args) =>
  execFileSync(process.execPath, [join(root, "node_modules", tool), ...args], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });

run("openapi-typescript/bin/cli.js", "openapi.json", "-o", "src/api/schema.d.ts");
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const built = await esbuild.build({
  absWorkingDir: root,
  entryPoints: { console: "src/main.tsx", styles: "src/styles.css" },
  outdir: out,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  minify: true,
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
});

const outputs = Object.keys(built.metafile.outputs).map((path) => relative(out, join(root, path)));
const named = (start, end) => outputs.find((name) => name.startsWith(start) && name.endsWith(end));
const page = readFileSync(join(root, "index.html"), "utf8")
  .replace("%STYLES%", named("styles-", ".css"))
  .replace("%SCRIPT%", named("console-", ".js"));
writeFileSync(join(out, "index.html"), page);
writeFileSync(join(out, "icon.svg"), readFileSync(join(root, "icon.svg")));
writeFileSync(join(out, "licences.txt"), licences(built.metafile));

let size = 0;
for (const name of readdirSync(out)) {
  if (name === "licences.txt") continue;
  size += gzipSync(readFileSync(join(out, name)), { level: 9 }).length;
}
const inWords = `${(size / 1000).toFixed(0)} kB gzip in ${readdirSync(out).length} files`;
if (size > MOST_GZIP_BYTES) {
  console.error(`the console has ${inWords}; ${MOST_GZIP_BYTES / 1000} kB is the most it may have`);
  process.exit(1);
}
console.log(`the console is built: ${inWords}`);

/** The licences of all packages of which something is in the bundle. */
function licences(metafile) {
  const packages = new Set();
  for (const path of Object.keys(metafile.inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (found) packages.add(found[1]);
  }
  const parts = [...packages].sort().map((name) => {
    const folder = join(root, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
    const text = file && existsSync(join(folder, file)) ? readFileSync(join(folder, file), "utf8").trim() : "";
    return `${name} ${about.version} (${about.license})\n\n${text}\n`;
  });
  return `The console contains these packages.\n\n${parts.join(`\n${"-".repeat(78)}\n\n`)}`;
}
