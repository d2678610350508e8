// CodeMirror for ESL: highlighting, completion from the catalog, mistakes underlined as one types.
import { autocompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, type Diagnostic } from "@codemirror/lint";
import { EditorState, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { api, type RequestProblem } from "../api/client";
import { FUNCTIONS, KEYWORDS, TYPES, type CatalogWords } from "./esl-words";

const words = (list: string[]): Set<string> => new Set(list.map((word) => word.toLowerCase()));
const keywords = words(KEYWORDS);
const types = words(TYPES);
const functions = words(FUNCTIONS);

const esl = StreamLanguage.define({
  name: "esl",
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match("--")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/^'(?:[^']|'')*'?/)) return "string";
    if (stream.match(/^"(?:[^"]|"")*"?/)) return "variableName";
    if (stream.match(/^\d+(?:\.\d+)?/)) return "number";
    const word = stream.match(/^[A-Za-z_]\w*/);
    if (word && typeof word === "object") {
      const text = word[0]!.toLowerCase();
      if (keywords.has(text)) return "keyword";
      if (types.has(text)) return "typeName";
      return functions.has(text) ? "function" : "variableName";
    }
    stream.next();
    return "operator";
  },
  tokenTable: { function: tags.function(tags.variableName) },
  languageData: { commentTokens: { line: "--" } },
});

const look = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: tags.typeName, color: "var(--violet)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: tags.number, color: "var(--blue)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: tags.function(tags.variableName), color: "var(--warn)" },
]);

const frame = EditorView.theme({
  "&": { fontSize: "13px", minHeight: "260px", backgroundColor: "var(--paper)", color: "var(--ink)" },
  ".cm-content": { fontFamily: "var(--mono)", padding: "10px 0", caretColor: "var(--ink)" },
  ".cm-scroller": { maxHeight: "60vh" },
  ".cm-gutters": { backgroundColor: "var(--paper)", color: "var(--soft)", border: "none" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--paper)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad)",
    textDecorationSkipInk: "none",
    textUnderlineOffset: "3px",
  },
});

/** Where a problem stands in a text: lines and columns count from 1. */
export function diagnosticOf(problem: RequestProblem, doc: Text): Diagnostic {
  const at = (line: number | null | undefined, column: number | null | undefined): number => {
    const found = doc.line(Math.min(Math.max(line ?? 1, 1), doc.lines));
    return Math.min(found.from + (column ?? 1) - 1, found.to);
  };
  const from = at(problem.line, problem.column);
  const to = Math.max(at(problem.end_line ?? problem.line, problem.end_column), from);
  const message = problem.hint ? `${problem.message}. ${problem.hint}` : problem.message;
  return { from: from === to ? Math.max(0, from - 1) : from, to, severity: "error", message };
}

interface EditorProps {
  text: string;
  catalog: CatalogWords;
  onChange: (text: string) => void;
  onProblems: (problems: RequestProblem[]) => void;
  onRun: () => void;
}

export function EslEditor({ text, catalog, onChange, onProblems, onRun }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const now = useRef({ catalog, onChange, onProblems, onRun });
  now.current = { catalog, onChange, onProblems, onRun };

  useEffect(() => {
    // In a root of its own, styles need no permission to stand in the page.
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const checked = linter(
      async (shown) => {
        const written = shown.state.doc.toString();
        if (!written.trim()) return [];
        const found = await api.check(written).catch(() => null);
        if (found === null || shown.state.doc.toString() !== written) return [];
        now.current.onProblems(found.errors);
        return found.errors.map((problem) => diagnosticOf(problem, shown.state.doc));
      },
      { delay: 350 },
    );
    const run = (): boolean => {
      now.current.onRun();
      return true;
    };
    const made = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          esl,
          syntaxHighlighting(look),
          frame,
          checked,
          lintGutter(),
          autocompletion({ override: [(context) => complete(context, now.current.catalog)] }),
          keymap.of([{ key: "Mod-Enter", run }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "Statements in ESL" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) now.current.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);
  useEffect(() => {
    const shown = view.current;
    if (shown && shown.state.doc.toString() !== text) {
      shown.dispatch({ changes: { from: 0, to: shown.state.doc.length, insert: text } });
    }
  }, [text]);
  return <div class="editor" ref={host} />;
}

function complete(context: CompletionContext, catalog: CatalogWords): CompletionResult | null {
  const word = context.matchBefore(/\w+/);
  if (!word && !context.explicit) return null;
  const options: Completion[] = [
    ...catalog.columns.map(({ name, of }) => ({ label: name, type: "property", detail: of, boost: 3 })),
    ...catalog.relations.map(({ name, kind }) => ({ label: name, type: "class", detail: kind, boost: 2 })),
    ...FUNCTIONS.map((label) => ({ label, type: "function", apply: `${label}(` })),
    ...KEYWORDS.map((label) => ({ label, type: "keyword" })),
    ...TYPES.map((label) => ({ label, type: "type" })),
  ];
  return { from: word ? word.from : context.pos, options, validFor: /^\w*$/ };
}
