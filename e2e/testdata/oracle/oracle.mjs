// Reads lines of JSON {"id", "data"} with the base64 of SKILL.md files, and answers each with
// {"id", "json"} or {"id", "error"}: the frontmatter as the package yaml parses it, by the YAML 1.2
// core schema, with its keys in the order of the file. The package is loaded from the directory that
// is the first argument.
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { join } from 'node:path'

const yaml = createRequire(join(process.argv[2], 'package.json'))('yaml')
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })

const fence = (line) => /^---[ \t]*\r?$/.test(line)

function frontmatter(bytes) {
  const lines = decoder.decode(bytes).split('\n')
  if (!fence(lines[0])) throw new Error('no frontmatter')
  const end = lines.findIndex((line, i) => i > 0 && fence(line))
  if (end < 0) throw new Error('not closed')
  return lines.slice(1, end).map((line) => line + '\n').join('')
}

// write is JSON.stringify for what toJS gives with maps kept, whose keys stay in order.
function write(value) {
  if (Array.isArray(value)) return '[' + value.map(write).join(',') + ']'
  if (value instanceof Map) {
    return '{' + [...value].map(([key, item]) => JSON.stringify(keyText(key)) + ':' + write(item)).join(',') + '}'
  }
  return JSON.stringify(value)
}

function keyText(key) {
  if (key === null) return ''
  if (typeof key === 'object') throw new Error('a key is a collection')
  return String(key)
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, data } = JSON.parse(line)
  let answer
  try {
    const document = yaml.parseDocument(frontmatter(Buffer.from(data, 'base64')), { version: '1.2', schema: 'core', strict: true, logLevel: 'silent' })
    if (document.errors.length > 0) throw document.errors[0]
    const value = document.toJS({ mapAsMap: true })
    answer = value === null ? '{}' : write(value)
    answer = { id, json: answer }
  } catch (error) {
    answer = { id, error: String(error.message).split('\n')[0] }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
