// Statements that the console writes for people.

/** A name as ESL has it, in quotes. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** What replaces a query, to be changed and run. */
export function replacing(text: string): string {
  return `${text.trim().replace(/;?$/, ";").replace(/^(\s*)create\s+(?:or\s+replace\s+)?query\b/i, "$1CREATE OR REPLACE QUERY")}\n`;
}

/** A text cut at its semicolons; those in quotes and comments do not count. */
export function statementsOf(text: string): string[] {
  const parts = text.match(/(?:'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*|[^;'"-]|-)+/g) ?? [];
  return parts.map((part) => part.trim()).filter(Boolean);
}

/** What asks beforehand what replacements would keep; empty where a text replaces nothing. */
export function explainReplacements(text: string): string {
  const found = statementsOf(text).flatMap((one) => {
    const bare = one.replace(/^(?:\s*--[^\n]*\n)*\s*/, "");
    return /^create\s+or\s+replace\b/i.test(bare) ? [bare.replace(/^create\s+or\s+/i, "EXPLAIN ")] : [];
  });
  return found.join(";\n");
}

/** An alert on a query, to be changed and run. */
export function alertTemplate(query: string): string {
  return `CREATE ALERT ${quoted(`${query}_slow`)} ON ${quoted(query)}
  WHEN p99 > INTERVAL 2 SECONDS FOR 1 MINUTE REPEAT EVERY 1 HOUR
  WEBHOOK 'https://example.org/alerts';`;
}

/** A query over what came too late for a stream, to be changed and run. */
export function lateTemplate(stream: string): string {
  return `CREATE QUERY ${quoted(`${stream}_too_late`)} FROM BEGINNING AS
  SELECT * FROM ${quoted(`${stream}_late`)};
`;
}
