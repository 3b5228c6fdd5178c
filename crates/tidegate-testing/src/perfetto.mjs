// Loads a trace into Perfetto's own trace processor and prints what SQL queries find: for each a line with a JSON array
// of rows.
//
// usage: node perfetto.mjs DIR TRACE SQL...      DIR: where engine_bundle.js and trace_processor*.wasm are
//
// It is the trace processor that Perfetto's page runs, in a worker. It speaks protobuf; the numbers of messages' fields
// are those of perfetto's protos/perfetto/trace_processor/trace_processor.proto.

import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [dir, trace, ...queries] = process.argv.slice(2);

// Methods of the trace processor, and kinds of cells.
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const VARINT = 2, FLOAT = 3, STRING = 4;
// Bytes of a trace that are handed over at once.
const STEP = 16 << 20;

function varint(n) {
  const out = [];
  for (n = BigInt(n); n > 127n; n >>= 7n) out.push(Number(n & 127n) | 128);
  return [...out, Number(n)];
}
const number = (field, n) => Buffer.from([...varint(field << 3), ...varint(n)]);
const bytes = (field, data) => Buffer.concat([Buffer.from([...varint((field << 3) | 2), ...varint(data.length)]), data]);

class Reader {
  constructor(data) {
    [this.data, this.at] = [data, 0];
  }
  get more() {
    return this.at < this.data.length;
  }
  varint() {
    for (let n = 0n, shift = 0n; ; shift += 7n) {
      const byte = BigInt(this.data[this.at++]);
      n |= (byte & 127n) << shift;
      if (byte < 128n) return n;
    }
  }
  take(length) {
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }
}

// The fields of a message: numbers, each with an integer or bytes.
function* fields(message) {
  const reader = new Reader(message ?? Buffer.alloc(0));
  while (reader.more) {
    const key = Number(reader.varint());
    const wire = key & 7;
    if (wire === 0) yield [key >> 3, reader.varint()];
    else yield [key >> 3, reader.take(wire === 2 ? Number(reader.varint()) : wire === 1 ? 8 : 4)];
  }
}

function field(message, wanted) {
  for (const [n, value] of fields(message)) if (n === wanted) return value;
}

function integers(value) {
  if (typeof value === "bigint") return [value];
  const [reader, out] = [new Reader(value), []];
  while (reader.more) out.push(BigInt.asIntN(64, reader.varint()));
  return out;
}

function fail(error) {
  if (error?.length) throw new Error(error.toString());
}

// The world of a web worker, as far as the bundle looks at it.
const port = { replies: [], postMessage(data) { this.replies.push(Buffer.from(data)); } };
class XMLHttpRequest {
  open(_method, url) { this.file = path.join(dir, path.basename(url)); }
  send() { this.response = new Uint8Array(fs.readFileSync(this.file)); }
}
const world = {
  XMLHttpRequest, WebAssembly, TextDecoder, TextEncoder, URL, performance, setTimeout, crypto, Uint8Array, Error, TypeError,
  console: { log() {}, info() {}, debug() {}, warn() {}, error: console.error },
  location: { href: "file:///engine_bundle.js" },
};
world.WorkerGlobalScope = function () {};
world.self = world;
const bundle = fs.readFileSync(path.join(dir, "engine_bundle.js"), "utf8");
vm.runInNewContext(bundle, world, { filename: "engine_bundle.js" });
// It is ready once what it has promised itself is done.
await new Promise((done) => setTimeout(done, 50));
world.onmessage({ data: port });

let seq = 0;
function call(method, args = Buffer.alloc(0)) {
  port.replies = [];
  const request = Buffer.concat([number(1, seq++), number(2, method), args]);
  port.onmessage({ data: new Uint8Array(bytes(1, request)) });
  const replies = [...fields(Buffer.concat(port.replies))].map(([, reply]) => reply);
  for (const reply of replies) fail(field(reply, 5));
  return replies;
}

function load(file) {
  const data = fs.readFileSync(file);
  for (let at = 0; at < data.length; at += STEP)
    for (const reply of call(APPEND, bytes(101, data.subarray(at, at + STEP)))) fail(field(field(reply, 201), 2));
  for (const reply of call(FINALIZE)) fail(field(field(reply, 212), 1));
}

function query(sql) {
  const [columns, cells, rows] = [[], [], []];
  for (const reply of call(QUERY, bytes(103, bytes(1, Buffer.from(sql)))))
    for (const [n, value] of fields(field(reply, 203))) {
      if (n === 1) columns.push(value.toString());
      if (n === 2) fail(value);
      if (n === 3) cells.push(...batch(value));
    }
  for (let at = 0; at < cells.length; at += columns.length) rows.push(cells.slice(at, at + columns.length));
  return rows;
}

// Cells say what they are; their values are in a list for each kind.
function batch(message) {
  const [kinds, ints, floats, strings] = [[], [], [], []];
  for (const [n, value] of fields(message)) {
    if (n === 1) kinds.push(...integers(value).map(Number));
    if (n === 2) ints.push(...integers(value).map(Number));
    if (n === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (n === 5) strings.push(...value.toString().split("\0"));
  }
  const next = { [VARINT]: ints.values(), [FLOAT]: floats.values(), [STRING]: strings.values() };
  return kinds.map((kind) => next[kind]?.next().value ?? null);
}

load(trace);
for (const sql of queries) console.log(JSON.stringify(query(sql)));
process.exit(0);
