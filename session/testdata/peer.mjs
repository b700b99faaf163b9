// The official SDK's session functions, one call a line of stdin: [name, arg...].
// Each answer is a line: {"value": ...} or {"error": "..."}.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
const sdk = await import(pathToFileURL(process.argv[2]).href)
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line)
  let out
  try {
    out = { value: (await sdk[name](...args)) ?? null }
  } catch (e) {
    out = { error: String(e.message ?? e) }
  }
  console.log(JSON.stringify(out))
}
