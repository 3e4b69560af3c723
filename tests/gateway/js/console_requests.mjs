// Reads the console's modules and prints, as JSON, every request except GET that they can send: [method, path, where].
// `{}` stands for a value in a path. An expression that this program cannot read is an error.
//
// It starts at the only call of `fetch`. If a part of that request is a parameter, it continues with each call of the
// function, and so on, until every part is known.

import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const HERE = dirname(fileURLToPath(import.meta.url));
const FORBIDDEN = ["XMLHttpRequest", "WebSocket", "WebTransport", "sendBeacon", "eval"];
const VALUE = "{}";
const UNKNOWN = Symbol("an argument that was left out");

const file = join(HERE, "console.tsconfig.json");
const { fileNames, options } = ts.parseJsonConfigFileContent(ts.readConfigFile(file, ts.sys.readFile).config, ts.sys, HERE);
const program = ts.createProgram(fileNames, options);
const checker = program.getTypeChecker();
const modules = program.getSourceFiles().filter((one) => one.fileName.endsWith(".mjs"));

const where = (node) => {
  const source = node.getSourceFile();
  const { line } = source.getLineAndCharacterOfPosition(node.getStart());
  return `${relative(join(HERE, "../../../gateway/console_page"), source.fileName)}:${line + 1}`;
};
const fail = (node, why) => { throw new Error(`${where(node)}: ${why}: ${node.getText()}`); };

/** A parameter, whose value only the calls of its function determine. */
class Parameter extends Error {
  constructor(declaration) {
    super();
    this.declaration = declaration;
  }
}

function bare(node) {
  while (ts.isParenthesizedExpression(node) || ts.isAwaitExpression(node) || ts.isAsExpression(node)) node = node.expression;
  return node;
}

function declarationOf(identifier) {
  let symbol = ts.isShorthandPropertyAssignment(identifier.parent)
    ? checker.getShorthandAssignmentValueSymbol(identifier.parent) : checker.getSymbolAtLocation(identifier);
  if (symbol && symbol.flags & ts.SymbolFlags.Alias) symbol = checker.getAliasedSymbol(symbol);
  return symbol?.valueDeclaration;
}

/** Return the function that a declaration names. */
function functionOf(declaration) {
  if (!declaration) return null;
  if (ts.isFunctionDeclaration(declaration)) return declaration;
  const value = ts.isVariableDeclaration(declaration) && declaration.initializer && bare(declaration.initializer);
  return value && (ts.isArrowFunction(value) || ts.isFunctionExpression(value)) ? value : null;
}

const parameterOf = (declaration) => {
  let node = declaration;
  while (ts.isBindingElement(node)) node = node.parent.parent;
  return ts.isParameter(node) ? node : null;
};

/**
 * Return the values of an expression.
 * @param {Map<ts.Node, (known) => string[]>[]} known the arguments of the calls on the way, innermost function first
 */
function valuesOf(given, known) {
  const node = bare(given);
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isTemplateExpression(node)) {
    return node.templateSpans.reduce((starts, span) => starts.flatMap((start) => (start.includes("?") ? [start]
      : joined(start, valuesOf(span.expression, known), span.literal.text))), [node.head.text]);
  }
  if (ts.isConditionalExpression(node)) return [...valuesOf(node.whenTrue, known), ...valuesOf(node.whenFalse, known)];
  if (ts.isBinaryExpression(node) && ["||", "??"].includes(node.operatorToken.getText())) {
    return [...valuesOf(node.left, known), ...valuesOf(node.right, known)];
  }
  if (ts.isNewExpression(node) && node.expression.getText() === "URL") return valuesOf(node.arguments[0], known);
  if (ts.isPropertyAccessExpression(node)) return [VALUE];
  if (ts.isCallExpression(node)) return valuesOfCall(node, known);
  if (ts.isIdentifier(node)) return valuesOfName(node, known);
  return fail(node, "unreadable");
}

const joined = (start, values, end) => values.map((one) => (one === UNKNOWN || start === UNKNOWN ? UNKNOWN : start + one + end));

function valuesOfCall(node, known) {
  const callee = bare(node.expression);
  const list = /^(\[.+\])\.map\(encodeURIComponent\)\.join\("\/"\)$/.test(node.getText()) && callee.expression.expression.expression;
  if (list) return [list.elements.map(() => VALUE).join("/")];
  if (callee.getText() === "encodeURIComponent" || ts.isPropertyAccessExpression(callee)) return [VALUE];
  const called = ts.isIdentifier(callee) && functionOf(declarationOf(callee));
  if (!called || ts.isBlock(called.body)) return fail(node, "unreadable call");
  return valuesOf(called.body, [argumentsOf(node, called), ...known]);
}

function valuesOfName(node, known) {
  const declaration = declarationOf(node) ?? fail(node, "unknown name");
  const at = known.findIndex((one) => one.has(declaration));
  if (at >= 0) return known[at].get(declaration)(known.slice(at + 1));
  if (parameterOf(declaration)) throw new Parameter(parameterOf(declaration));
  if (!ts.isVariableDeclaration(declaration)) return [VALUE]; // a field of a response
  const isConstant = ts.getCombinedNodeFlags(declaration) & ts.NodeFlags.Const;
  return isConstant && declaration.initializer ? valuesOf(declaration.initializer, known) : [VALUE];
}

/** Return, for each parameter of a call, a function that returns its values. Includes parameters in object patterns. */
function argumentsOf(call, called) {
  const found = new Map();
  called.parameters.forEach((parameter, at) => {
    const given = call.arguments[at] && bare(call.arguments[at]);
    if (given && ts.isSpreadElement(given)) fail(call, "unreadable argument");
    const whenMissing = (initializer) => (known) => (initializer ? valuesOf(initializer, known) : [UNKNOWN]);
    if (ts.isIdentifier(parameter.name)) {
      found.set(parameter, given ? (known) => valuesOf(given, known) : whenMissing(parameter.initializer));
      return;
    }
    for (const element of parameter.name.elements) {
      const name = (element.propertyName ?? element.name).getText();
      if (!given) found.set(element, whenMissing(element.initializer));
      else if (!ts.isObjectLiteralExpression(given)) found.set(element, () => [VALUE]);
      else {
        const property = given.properties.find((one) => one.name?.getText() === name);
        if (given.properties.some(ts.isSpreadAssignment)) fail(call, "unreadable argument");
        if (!property) found.set(element, whenMissing(element.initializer));
        else found.set(element, (known) => valuesOf(ts.isShorthandPropertyAssignment(property) ? property.name : property.initializer, known));
      }
    }
  });
  return found;
}

/** Every use of a name that refers to a function, by the function's declaration. */
const uses = new Map();
const fetches = [];
const visit = (node) => {
  if (ts.isIdentifier(node)) {
    if (FORBIDDEN.includes(node.text)) fail(node, "another way to send requests");
    if (node.text === "fetch") fetches.push(node);
    const isImported = ts.findAncestor(node, (one) => ts.isImportDeclaration(one) || ts.isExportDeclaration(one));
    const called = isImported ? null : functionOf(declarationOf(node));
    if (called && node.parent !== called && node.parent !== called.parent) uses.set(called, [...(uses.get(called) ?? []), node]);
  }
  ts.forEachChild(node, visit);
};
modules.forEach(visit);

/** Report the requests of a call, given its known arguments. */
const requests = [];
function follow(method, path, known, calls) {
  let methods;
  try {
    methods = valuesOf(method, known);
    if (methods.every((one) => one === "GET")) return;
    const paths = valuesOf(path, known).filter((one) => one !== UNKNOWN);
    for (const one of methods) {
      if (!/^(GET|POST|PUT|PATCH|DELETE)$/.test(one)) fail(calls.at(-1), `unreadable method ${String(one)}`);
      if (one !== "GET") requests.push(...paths.map((text) => [one, text.split("?")[0], where(calls.at(-1))]));
    }
  } catch (error) {
    if (!(error instanceof Parameter)) throw error;
    followCalls(error.declaration, method, path, known, calls);
  }
}

function followCalls(parameter, method, path, known, calls) {
  const called = parameter.parent;
  const names = uses.get(called) ?? fail(parameter, "a parameter of a function that nobody calls by name");
  for (const name of names) {
    const call = name.parent;
    if (!ts.isCallExpression(call) || call.expression !== name) fail(call, "a function that sends requests is passed on");
    // For a function that calls itself, once is enough.
    if (!calls.includes(call)) follow(method, path, [...known, argumentsOf(call, called)], [...calls, call]);
  }
}

if (fetches.length !== 1) throw new Error(`fetch is used ${fetches.length} times: ${fetches.map(where)}`);
const [{ parent: call }] = fetches;
const sent = call.arguments[1].properties.find((one) => one.name?.getText() === "method");
follow(sent.name, call.arguments[0], [], [call]);
console.log(JSON.stringify(requests));
