// Bundle the page into one file: `node build.mjs`.  `check` says whether the committed file is what the sources build;
// `tests` and `compare FOLDER` bundle the unit tests, and what the library's tests ask, for Node.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));
const page = join(root, "../src/scansnap/explorer/explorer.html");
const LARGEST = 400_000;

/** `import code from "x?inline"`: a module bundled on its own, as text; how the worker gets into the one file. */
const inline = {
  name: "inline",
  setup(context) {
    context.onResolve({ filter: /\?inline$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace(/\?inline$/, ".ts")),
      namespace: "inline",
    }));
    context.onLoad({ filter: /.*/, namespace: "inline" }, async ({ path }) => ({
      contents: await bundled(path),
      loader: "text",
      watchFiles: [path],
    }));
  },
};

async function bundled(entry, loader = {}) {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    absWorkingDir: root,
    loader,
    plugins: [inline],
  });
  return result.outputFiles[0].text;
}

async function document() {
  const script = await bundled("src/page/main.ts", { ".css": "text", ".svg": "text" });
  const shell = readFileSync(join(root, "src/page/index.html"), "utf8");
  // `</script` inside a string of the code would end the element.
  return shell.replace("<!-- script -->", () => `<script>${script.trim().replaceAll("</script", "<\\/script")}</script>`);
}

async function forNode(entryPoints, outdir) {
  await build({ entryPoints, outdir, bundle: true, platform: "node", format: "esm", outExtension: { ".js": ".mjs" },
    absWorkingDir: root, plugins: [inline], loader: { ".css": "text", ".svg": "text" } });
}

const task = process.argv[2];
if (task === "tests") {
  await forNode(readdirSync(join(root, "tests")).map((name) => `tests/${name}`), "build/tests");
} else if (task === "compare") {
  await forNode(["src/compare.ts"], process.argv[3]);
} else {
  const html = await document();
  const size = Buffer.byteLength(html);
  if (size > LARGEST) throw new Error(`the page has ${size} bytes: at most ${LARGEST} are allowed.`);
  if (task === "check") {
    if (readFileSync(page, "utf8") !== html) {
      console.error("src/scansnap/explorer/explorer.html is not what web/ builds: run `npm run build` in web/.");
      process.exit(1);
    }
  } else {
    mkdirSync(dirname(page), { recursive: true });
    writeFileSync(page, html);
    console.log(`${size} bytes`);
  }
}
