// CodeMirror for ESL: highlighting, completion from the catalog, mistakes underlined as one types.
import { autocompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, type Diagnostic } from "@codemirror/lint";
import { Compartment, EditorState, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { api, type EditorWords, type RequestProblem } from "../api/client";
import { offersAt } from "./esl-words";

/** ESL for CodeMirror, with the words that are known. */
function language(known: EditorWords): StreamLanguage<unknown> {
  const set = (list: string[]): Set<string> => new Set(list.map((word) => word.toLowerCase()));
  const keywords = set(known.keywords);
  const types = set(known.types);
  const functions = set(known.functions.map((one) => one.name));
  return StreamLanguage.define({
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
        if (functions.has(text) && stream.match(/^\s*\(/, false)) return "function";
        if (keywords.has(text)) return "keyword";
        return types.has(text) ? "typeName" : "variableName";
      }
      stream.next();
      return "operator";
    },
    tokenTable: { function: tags.function(tags.variableName) },
    languageData: { commentTokens: { line: "--" } },
  });
}

const look = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: tags.typeName, color: "var(--violet)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: tags.number, color: "var(--blue)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: tags.function(tags.variableName), color: "var(--warn)" },
]);

const frame = EditorView.theme({
  "&": { fontSize: "13px", minHeight: "max(260px, 44vh)", backgroundColor: "var(--paper)", color: "var(--ink)" },
  ".cm-content": { fontFamily: "var(--mono)", padding: "10px 0", caretColor: "var(--ink)" },
  ".cm-scroller": { maxHeight: "60vh" },
  ".cm-gutters": { backgroundColor: "var(--paper)", color: "var(--soft)", border: "none" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "none" },
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
  words: EditorWords;
  onChange: (text: string) => void;
  /** A text has been checked, and has these problems. */
  onChecked: (text: string, problems: RequestProblem[]) => void;
  onRun: () => void;
}

export function EslEditor({ text, words, onChange, onChecked, onRun }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const spoken = useRef(new Compartment());
  const now = useRef({ words, onChange, onChecked, onRun });
  now.current = { words, onChange, onChecked, onRun };

  useEffect(() => {
    // In a root of its own, styles need no permission to stand in the page.
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const checked = linter(
      async (shown) => {
        const written = shown.state.doc.toString();
        const found = written.trim() ? await api.check(written).catch(() => null) : { errors: [] };
        if (found === null || shown.state.doc.toString() !== written) return [];
        now.current.onChecked(written, found.errors);
        return found.errors.map((problem) => diagnosticOf(problem, shown.state.doc));
      },
      { delay: 300 },
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
          spoken.current.of(language(words)),
          syntaxHighlighting(look),
          frame,
          checked,
          lintGutter(),
          autocompletion({ override: [(context) => complete(context, now.current.words)] }),
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
  useEffect(() => view.current?.dispatch({ effects: spoken.current.reconfigure(language(words)) }), [words]);
  useEffect(() => {
    const shown = view.current;
    if (shown && shown.state.doc.toString() !== text) {
      shown.dispatch({ changes: { from: 0, to: shown.state.doc.length, insert: text } });
    }
  }, [text]);
  return <div class="editor" ref={host} />;
}

const ICONS = { keyword: "keyword", type: "type", function: "function", relation: "class", column: "property" };

function complete(context: CompletionContext, words: EditorWords): CompletionResult | null {
  const word = context.matchBefore(/\w+/);
  const before = context.state.sliceDoc(Math.max(0, context.pos - 200), context.pos);
  if (!word && !context.explicit && !before.endsWith(".")) return null;
  const offers = offersAt(before, context.state.doc.toString(), words);
  const options: Completion[] = offers.map(({ label, kind, detail, boost }) => ({
    label,
    type: ICONS[kind],
    detail,
    boost,
    ...(kind === "function" ? { apply: `${label}(` } : {}),
  }));
  return { from: word ? word.from : context.pos, options, validFor: /^\w*$/ };
}
