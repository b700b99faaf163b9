package parleytest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// A Refusal is the rejection of a request by a rule of the API.
type Refusal struct {
	Rule    string // the name of the rule
	Status  int
	Type    string
	Message string
}

// Error returns the API's message.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%d %s: %s (rule %s)", r.Status, r.Type, r.Message, r.Rule)
}

// A Rule is a condition under which the Messages API rejects a request. The
// strict API checks the rules in order, and the first broken one determines the
// response.
type Rule struct {
	Name    string
	Says    string // the rule in a sentence
	Status  int
	Type    string // of the error
	Message string // the answer to Breaks
	Known   string // source of the response format

	// Breaks returns a request that breaks this rule and none before it.
	Breaks func() (http.Header, []byte)

	check func(*checked) string // the message, or "" if the rule holds
}

// Rules returns the rules of the strict API.
func Rules() []Rule { return slices.Clone(rules) }

// Sources of the error formats.
const (
	fromErrors  = "https://docs.claude.com/en/api/errors"
	fromMessage = "https://docs.claude.com/en/api/messages (the constraint); the wording follows its validator"
	fromCaching = "https://docs.claude.com/en/docs/build-with-claude/prompt-caching"
	ownWords    = "the status and the type are the API's, the wording is ours"
	unchecked   = "the constraint is the API's; its wording was not found on record"
)

// Messages that several rules share.
const (
	maxImage     = 5 << 20 // in base64, as the API counts
	badTag       = "Input tag '%s' found using 'type' does not match any of the expected tags: %s"
	required     = "Field required"
	schemaBroken = "JSON schema is invalid. It must match JSON Schema draft 2020-12 (https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use."
	thinkingDocs = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
)

var rules []Rule

func init() { // not an initialiser, which could not refer to itself
	invalid := func(name, says, breaks, message, known string, check func(*checked) string) Rule {
		return Rule{Name: name, Says: says, Status: 400, Type: "invalid_request_error", Message: message, Known: known,
			Breaks: func() (http.Header, []byte) { return goodHeader(), []byte(breaks) }, check: check}
	}
	rules = []Rule{
		{
			Name: "request-size", Says: "a request has 32 MB at most",
			Status: 413, Type: "request_too_large", Message: "Request exceeds the maximum size", Known: fromErrors,
			Breaks: func() (http.Header, []byte) { return goodHeader(), bytes.Repeat([]byte(" "), maxBody+1) },
			check: func(c *checked) string {
				return when(len(c.r.Body) > maxBody, "Request exceeds the maximum size")
			},
		}, {
			Name: "api-key", Says: "a key is given in x-api-key or authorization",
			Status: 401, Type: "authentication_error", Message: "x-api-key header is required", Known: "https://github.com/n8n-io/n8n/issues/37930",
			Breaks: func() (http.Header, []byte) { return goodHeader("x-api-key"), []byte(goodBody) },
			check: func(c *checked) string {
				return when(c.http && c.r.Header.Get("x-api-key") == "" && c.r.Header.Get("authorization") == "", "x-api-key header is required")
			},
		}, {
			Name: "anthropic-version", Says: "the header anthropic-version is there",
			Status: 400, Type: "invalid_request_error", Message: "anthropic-version: header is required", Known: "https://github.com/Pasta-Devs/Marinara-Engine/issues/120",
			Breaks: func() (http.Header, []byte) { return goodHeader("anthropic-version"), []byte(goodBody) },
			check: func(c *checked) string {
				return when(c.http && c.r.Header.Get("anthropic-version") == "", "anthropic-version: header is required")
			},
		}, {
			Name: "known-version", Says: "the header anthropic-version has a version that exists",
			Status: 400, Type: "invalid_request_error", Message: `anthropic-version: "2020-01-01" is not a valid version`, Known: ownWords,
			Breaks: func() (http.Header, []byte) {
				h := goodHeader()
				h.Set("anthropic-version", "2020-01-01")
				return h, []byte(goodBody)
			},
			check: func(c *checked) string {
				v := c.r.Header.Get("anthropic-version")
				return when(c.http && v != "2023-06-01" && v != "2023-01-01", fmt.Sprintf("anthropic-version: %q is not a valid version", v))
			},
		}, {
			Name: "content-type", Says: "the body is sent as application/json",
			Status: 400, Type: "invalid_request_error", Message: "content-type: must be application/json", Known: ownWords,
			Breaks: func() (http.Header, []byte) { return goodHeader("content-type"), []byte(goodBody) },
			check: func(c *checked) string {
				t, _, _ := mime.ParseMediaType(c.r.Header.Get("content-type"))
				return when(c.http && t != "application/json", "content-type: must be application/json")
			},
		},
		invalid("json", "the body is JSON", `{"model":`,
			"The request body is not valid JSON: unexpected end of JSON input", "https://github.com/anthropics/claude-code/issues/6273 (the first half; what follows is of the parser)",
			func(c *checked) string {
				if c.jsonErr != nil {
					return "The request body is not valid JSON: " + c.jsonErr.Error()
				}
				return ""
			}),
		invalid("surrogates", "strings have no half of a surrogate pair", strings.Replace(goodBody, "hi", `\ud83d`, 1),
			"The request body is not valid JSON: no low surrogate in string: line 1 column 67 (char 66)", "https://github.com/anthropics/claude-code/issues/6273",
			func(c *checked) string {
				if loneSurrogate(c.rest) >= 0 {
					i := loneSurrogate(c.r.Body)
					line := 1 + bytes.Count(c.r.Body[:i], []byte("\n"))
					col := i - bytes.LastIndexByte(c.r.Body[:i], '\n')
					return fmt.Sprintf("The request body is not valid JSON: no low surrogate in string: line %d column %d (char %d)", line, col, i)
				}
				return ""
			}),
		invalid("object", "the body is an object", `[]`, "Input should be a valid dictionary or object to extract fields from", fromMessage,
			func(c *checked) string {
				return when(c.top == nil, "Input should be a valid dictionary or object to extract fields from")
			}),
		invalid("model", "model names a model", `{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "model: Field required", fromMessage,
			func(c *checked) string { return c.wantString("model") }),
		invalid("max_tokens", "max_tokens is given and is 1 or more", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "max_tokens: Field required", fromMessage,
			func(c *checked) string {
				if c.count {
					return ""
				}
				n, ok, msg := c.number("max_tokens")
				switch {
				case msg != "":
					return msg
				case !ok:
					return "max_tokens: " + required
				}
				return when(n < 1, "max_tokens: Input should be greater than or equal to 1")
			}),
		invalid("messages", "messages is a list of at least one message", `{"model":"m","max_tokens":9,"messages":[]}`, "messages: at least one message is required", fromMessage,
			func(c *checked) string {
				if _, ok := c.top["messages"]; !ok {
					return "messages: " + required
				}
				if c.messages == nil {
					return "messages: Input should be a valid list"
				}
				return when(len(c.messages) == 0, "messages: at least one message is required")
			}),
		invalid("extra-fields", "members that the API does not know are not sent, unless a beta may know them", strings.Replace(goodBody, "{", `{"response_format":{},`, 1),
			"response_format: Extra inputs are not permitted", "https://github.com/amrit110/oli/issues/7",
			func(c *checked) string {
				if c.beta() != "" {
					return ""
				}
				for _, name := range sortedKeys(c.top) {
					if !slices.Contains(topLevel, name) {
						return name + ": Extra inputs are not permitted"
					}
				}
				return ""
			}),
		invalid("temperature", "temperature is from 0 to 1", strings.Replace(goodBody, "{", `{"temperature":1.5,`, 1), "temperature: range: 0..1", "https://github.com/anthropics/anthropic-sdk-python/issues/893",
			func(c *checked) string {
				n, ok, msg := c.number("temperature")
				if msg != "" {
					return msg
				}
				return when(ok && (n < 0 || n > 1), "temperature: range: 0..1")
			}),
		invalid("thinking-type", "thinking is enabled, disabled or adaptive", strings.Replace(goodBody, "{", `{"thinking":{"type":"on"},`, 1),
			"thinking: "+fmt.Sprintf(badTag, "on", "'adaptive', 'disabled', 'enabled'"), fromMessage,
			func(c *checked) string {
				switch t := c.thinking.Type; {
				case c.top["thinking"] == nil || t == "enabled" || t == "disabled" || t == "adaptive":
					return ""
				default:
					return "thinking: " + fmt.Sprintf(badTag, t, "'adaptive', 'disabled', 'enabled'")
				}
			}),
		invalid("thinking-minimum", "a thinking budget has 1024 tokens or more", strings.Replace(goodBody, "{", `{"thinking":{"type":"enabled","budget_tokens":512},`, 1),
			"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024", "https://github.com/themaximalist/llm.js/issues/30",
			func(c *checked) string {
				if c.thinking.Type != "enabled" {
					return ""
				}
				if c.thinking.Budget == nil {
					return "thinking.enabled.budget_tokens: " + required
				}
				return when(*c.thinking.Budget < 1024, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
			}),
		invalid("thinking-budget", "max_tokens is greater than the thinking budget, unless thinking is interleaved", strings.Replace(goodBody, "{", `{"thinking":{"type":"enabled","budget_tokens":2048},`, 1),
			"`max_tokens` must be greater than `thinking.budget_tokens`. "+thinkingDocs+"#max-tokens-and-context-window-size", "https://github.com/liuw1535/antigravity2api-nodejs/issues/150",
			func(c *checked) string {
				n, ok, _ := c.number("max_tokens")
				return when(c.thinking.Type == "enabled" && ok && n <= *c.thinking.Budget && !strings.Contains(c.beta(), "interleaved-thinking"),
					"`max_tokens` must be greater than `thinking.budget_tokens`. "+thinkingDocs+"#max-tokens-and-context-window-size")
			}),
		invalid("thinking-temperature", "with thinking enabled, temperature is 1", `{"model":"m","max_tokens":4000,"temperature":0.5,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"hi"}]}`,
			"`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. "+thinkingDocs, "https://github.com/dyad-sh/dyad/issues/4396",
			func(c *checked) string {
				n, ok, _ := c.number("temperature")
				return when(ok && n != 1 && c.thinks(), "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. "+thinkingDocs)
			}),
		invalid("system", "system is text, or a list of text blocks that are not empty", strings.Replace(goodBody, "{", `{"system":[{"type":"text","text":""}],`, 1), "system: text content blocks must be non-empty", "https://github.com/anthropics/claude-code/issues/59812",
			checkSystem),
		invalid("tools", "a tool has a name of its own form, by 128 letters, digits, _ and - at most", tool(`{"name":"a b","input_schema":{"type":"object"}}`),
			"tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", "https://github.com/BerriAI/litellm/pull/26788",
			func(c *checked) string {
				if c.top["tools"] != nil && c.tools == nil {
					return "tools: Input should be a valid list"
				}
				return c.eachTool(func(path string, t checkedTool) string {
					if t.m["name"] == nil {
						return path + ".name: " + required
					}
					return when(!toolName().MatchString(t.name), path+".name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
				})
			}),
		invalid("tool-names", "no two tools have one name", tool(`{"name":"a","input_schema":{"type":"object"}},{"name":"a","input_schema":{"type":"object"}}`),
			"tools: Tool names must be unique.", "https://github.com/anthropics/claude-code/issues/10687",
			func(c *checked) string {
				seen := map[string]bool{}
				for _, t := range c.tools {
					if t.name != "" && seen[t.name] {
						return "tools: Tool names must be unique."
					}
					seen[t.name] = true
				}
				return ""
			}),
		invalid("input_schema", "a tool has an input_schema whose type is object", tool(`{"name":"a","input_schema":{"type":"string"}}`),
			"tools.0.custom.input_schema.type: Input should be 'object'", fromMessage,
			func(c *checked) string {
				return c.eachTool(func(path string, t checkedTool) string {
					if !t.custom {
						return ""
					}
					if _, ok := t.m["input_schema"]; !ok {
						return path + ".input_schema: " + required
					}
					if t.schema == nil {
						return path + ".input_schema: Input should be a valid dictionary"
					}
					if t.schema["type"] == nil {
						return path + ".input_schema.type: " + required
					}
					return when(stringOf(t.schema["type"]) != "object", path+".input_schema.type: Input should be 'object'")
				})
			}),
		invalid("schema-top", "an input_schema has no oneOf, allOf or anyOf at its top", tool(`{"name":"a","input_schema":{"type":"object","anyOf":[]}}`),
			"tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level", "https://github.com/anthropics/claude-code/issues/5319",
			func(c *checked) string {
				return c.eachTool(func(path string, t checkedTool) string {
					return when(t.custom && (t.schema["oneOf"] != nil || t.schema["allOf"] != nil || t.schema["anyOf"] != nil),
						path+".input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
				})
			}),
		invalid("schema", "an input_schema is a JSON schema", tool(`{"name":"a","input_schema":{"type":"object","properties":{"x":{"type":"text"}}}}`),
			"tools.0.custom.input_schema: "+schemaBroken, "https://github.com/anthropics/claude-code/issues/63673",
			func(c *checked) string {
				return c.eachTool(func(path string, t checkedTool) string {
					return when(t.custom && !validSchema(t.m["input_schema"]), path+".input_schema: "+schemaBroken)
				})
			}),
		invalid("tool_choice", "tool_choice is auto, any, tool or none", tool(`{"name":"a","input_schema":{"type":"object"}}`, `"tool_choice":{"type":"all"}`),
			"tool_choice: "+fmt.Sprintf(badTag, "all", "'any', 'auto', 'none', 'tool'"), fromMessage,
			func(c *checked) string {
				if c.top["tool_choice"] == nil || slices.Contains([]string{"any", "auto", "none", "tool"}, c.choice.Type) {
					return ""
				}
				return "tool_choice: " + fmt.Sprintf(badTag, c.choice.Type, "'any', 'auto', 'none', 'tool'")
			}),
		invalid("tool_choice-tools", "tool_choice comes with tools", strings.Replace(goodBody, "{", `{"tool_choice":{"type":"any"},`, 1),
			"tool_choice may only be specified while providing tools", unchecked,
			func(c *checked) string {
				return when(c.top["tool_choice"] != nil && len(c.tools) == 0, "tool_choice may only be specified while providing tools")
			}),
		invalid("tool_choice-name", "tool_choice names a tool on offer", tool(`{"name":"a","input_schema":{"type":"object"}}`, `"tool_choice":{"type":"tool","name":"b"}`),
			"Tool 'b' not found in provided tools", fromMessage,
			func(c *checked) string {
				return when(c.choice.Type == "tool" && !slices.ContainsFunc(c.tools, func(t checkedTool) bool { return t.name == c.choice.Name }),
					fmt.Sprintf("Tool '%s' not found in provided tools", c.choice.Name))
			}),
		invalid("tool_choice-thinking", "with thinking enabled, tool_choice forces no tool",
			`{"model":"m","max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2048},"tool_choice":{"type":"any"},"tools":[{"name":"a","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"hi"}]}`,
			"Thinking may not be enabled when tool_choice forces tool use.", "https://github.com/mastra-ai/mastra/issues/7507",
			func(c *checked) string {
				return when(c.thinks() && (c.choice.Type == "any" || c.choice.Type == "tool"), "Thinking may not be enabled when tool_choice forces tool use.")
			}),
		invalid("role", "a message is of user or assistant", messages(`{"role":"tool","content":"hi"}`),
			"messages.0.role: Input should be 'user' or 'assistant'", fromMessage,
			func(c *checked) string {
				for i, m := range c.messages {
					if m.role != "user" && m.role != "assistant" && m.role != "system" {
						return fmt.Sprintf("messages.%d.role: Input should be 'user' or 'assistant'", i)
					}
				}
				return ""
			}),
		invalid("role-system", "a message is of system only with a beta header, and not before the first of user", messages(`{"role":"system","content":"hi"}`),
			"messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.", "https://github.com/sgl-project/sglang/pull/368 (the constraint); the exception was seen of the official CLI",
			func(c *checked) string {
				for i, m := range c.messages {
					if m.role == "system" && (i == 0 || c.beta() == "") {
						return "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role."
					}
				}
				return ""
			}),
		invalid("first-role", "the first message is of user", messages(`{"role":"assistant","content":"hi"}`),
			`messages: first message must use the "user" role`, "https://github.com/livekit/agents/pull/669",
			func(c *checked) string {
				return when(c.messages[0].role != "user", `messages: first message must use the "user" role`)
			}),
		invalid("content", "a message has content, a final one of assistant excepted", messages(`{"role":"user","content":""}`),
			"messages.0: all messages must have non-empty content except for the optional final assistant message", "https://github.com/anthropics/claude-code/issues/6774",
			func(c *checked) string {
				for i, m := range c.messages {
					switch {
					case m.content == nil:
						return fmt.Sprintf("messages.%d.content: %s", i, required)
					case !m.isText && m.blocks == nil:
						return fmt.Sprintf("messages.%d.content: Input should be a valid list", i)
					case (m.isText && m.text == "" || !m.isText && len(m.blocks) == 0) && !(i == len(c.messages)-1 && m.role == "assistant"):
						return fmt.Sprintf("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
					}
				}
				return ""
			}),
		invalid("block-type", "a content block is of a type that the API knows", messages(`{"role":"user","content":[{"type":"video"}]}`),
			"messages.0.content.0: "+fmt.Sprintf(badTag, "video", quoted(blockTypes)), fromMessage,
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					if b.m == nil {
						return b.path + ": Input should be a valid dictionary or object to extract fields from"
					}
					known := blockTypes
					if b.inResult {
						known = resultTypes
					}
					return when(!slices.Contains(known, b.typ), b.path+": "+fmt.Sprintf(badTag, b.typ, quoted(known)))
				})
			}),
		invalid("block-fields", "a content block has what its type requires", messages(`{"role":"user","content":[{"type":"text"}]}`),
			"messages.0.content.0.text.text: Field required", fromMessage,
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					for _, f := range blockFields[b.typ] {
						raw, ok := b.m[f.name]
						if !ok {
							return fmt.Sprintf("%s.%s.%s: %s", b.path, b.typ, f.name, required)
						}
						if len(raw) > 0 && !strings.ContainsRune(f.begins, rune(raw[0])) {
							return fmt.Sprintf("%s.%s.%s: %s", b.path, b.typ, f.name, f.want)
						}
					}
					return ""
				})
			}),
		invalid("empty-text", "a text block is not empty", messages(`{"role":"user","content":[{"type":"text","text":""}]}`),
			"messages: text content blocks must be non-empty", "https://github.com/anthropics/claude-code/issues/59812",
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "text" && !b.inResult && stringOf(b.m["text"]) == "", "messages: text content blocks must be non-empty")
				})
			}),
		invalid("blank-text", "a message with text has some that is not only white space", messages(`{"role":"user","content":[{"type":"text","text":" \n"}]}`),
			"messages: text content blocks must contain non-whitespace text", "https://github.com/LibreChat-AI/agents/pull/124",
			func(c *checked) string {
				for _, m := range c.messages {
					blank, full := m.isText && m.text != "" && strings.TrimSpace(m.text) == "", false
					for _, b := range m.blocks {
						if b.typ == "text" {
							blank = true
							full = full || strings.TrimSpace(stringOf(b.m["text"])) != ""
						}
					}
					if blank && !full {
						return "messages: text content blocks must contain non-whitespace text"
					}
				}
				return ""
			}),
		invalid("trailing-space", "a final message of assistant does not end in white space", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":"So "}`),
			"messages: final assistant content cannot end with trailing whitespace", "https://github.com/tailcallhq/forgecode/issues/1872",
			func(c *checked) string {
				last := c.messages[len(c.messages)-1]
				text := last.text
				if n := len(last.blocks); n > 0 && last.blocks[n-1].typ == "text" {
					text = stringOf(last.blocks[n-1].m["text"])
				}
				return when(last.role == "assistant" && strings.TrimRight(text, " \t\r\n") != text, "messages: final assistant content cannot end with trailing whitespace")
			}),
		invalid("tool_use-role", "tool_use is in messages of assistant only", messages(`{"role":"user","content":[{"type":"tool_use","id":"t1","name":"a","input":{}}]}`),
			"messages.0: `tool_use` blocks can only be in `assistant` messages", unchecked,
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "tool_use" && b.role != "assistant", fmt.Sprintf("messages.%d: `tool_use` blocks can only be in `assistant` messages", b.message))
				})
			}),
		invalid("tool_result-role", "tool_result is in messages of user only", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"t1"}]}`),
			"messages.1: `tool_result` blocks can only be in `user` messages", "https://github.com/tghamm/Anthropic.SDK/issues/128",
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "tool_result" && b.role != "user", fmt.Sprintf("messages.%d: `tool_result` blocks can only be in `user` messages", b.message))
				})
			}),
		invalid("tool_use-id", "the id of a tool_use has letters, digits, _ and -", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a.b","name":"a","input":{}}]}`),
			"messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "https://github.com/HKUDS/nanobot/pull/4356",
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "tool_use" && !nameRE().MatchString(stringOf(b.m["id"])), b.path+".tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
				})
			}),
		invalid("tool_use-unique", "no two tool_use blocks have one id", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"a","input":{}},{"type":"tool_use","id":"t1","name":"a","input":{}}]}`),
			"messages.1.content.1: `tool_use` ids must be unique", "https://github.com/anthropics/claude-code/issues/20901",
			func(c *checked) string {
				seen := map[string]bool{}
				return c.eachBlock(func(b checkedBlock) string {
					if b.typ != "tool_use" {
						return ""
					}
					id := stringOf(b.m["id"])
					if seen[id] {
						return b.path + ": `tool_use` ids must be unique"
					}
					seen[id] = true
					return ""
				})
			}),
		invalid("tool_use-result", "a tool_use has its tool_result at the head of the next message", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"a","input":{}}]},{"role":"user","content":"so?"}`),
			"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", "https://github.com/anthropics/claude-code/issues/5989",
			checkToolUse),
		invalid("tool_result-use", "a tool_result has its tool_use in the message before", messages(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x"}]}`),
			"messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", "https://github.com/anthropics/claude-code/issues/13460",
			checkToolResult),
		invalid("tool_result-single", "a tool_use has one tool_result", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"a","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x"},{"type":"tool_result","tool_use_id":"t1","content":"y"}]}`),
			"messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: t1", unchecked,
			func(c *checked) string {
				seen := map[string]bool{}
				return c.eachBlock(func(b checkedBlock) string {
					if b.typ != "tool_result" {
						return ""
					}
					id := stringOf(b.m["tool_use_id"])
					if seen[id] {
						return b.path + ": each tool_use must have a single result. Found multiple `tool_result` blocks with id: " + id
					}
					seen[id] = true
					return ""
				})
			}),
		invalid("thinking-latest", "thinking blocks of the latest message of assistant are as they were issued",
			messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"other","signature":"`+sign("one")+`"},{"type":"text","text":"a"}]},{"role":"user","content":"b"}`),
			"messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.", "https://github.com/anthropics/claude-code/issues/63284",
			func(c *checked) string {
				latest := c.latestAssistant()
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "thinking" && b.message == latest && stringOf(b.m["signature"]) != sign(stringOf(b.m["thinking"])),
						b.path+": `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.")
				})
			}),
		invalid("thinking-signature", "thinking blocks have the signature they were issued with",
			messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"other","signature":"`+sign("one")+`"},{"type":"text","text":"a"}]},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}`),
			"messages.1.content.0: Invalid `signature` in `thinking` block", "https://github.com/anthropics/claude-code/issues/10627",
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when(b.typ == "thinking" && stringOf(b.m["signature"]) != sign(stringOf(b.m["thinking"])), b.path+": Invalid `signature` in `thinking` block")
				})
			}),
		invalid("thinking-dropped", "thinking blocks that came with tool calls go back with them while thinking is on",
			`{"model":"m","max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_main_1_1","name":"a","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","content":"x"}]}]}`,
			"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. "+thinkingDocs, "https://github.com/lbjlaq/Antigravity-Manager/issues/139",
			checkDroppedThinking),
		invalid("cache-thinking", "thinking blocks have no cache_control", messages(`{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"one","signature":"`+sign("one")+`","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"b"}`),
			"messages.1.content.0.thinking.cache_control: Extra inputs are not permitted", "https://github.com/router-for-me/CLIProxyAPI/issues/512",
			func(c *checked) string {
				return c.eachBlock(func(b checkedBlock) string {
					return when((b.typ == "thinking" || b.typ == "redacted_thinking") && b.m["cache_control"] != nil, b.path+"."+b.typ+".cache_control: Extra inputs are not permitted")
				})
			}),
		invalid("cache-breakpoints", "a request has four cache breakpoints at most",
			`{"model":"m","max_tokens":9,"system":[`+strings.Repeat(`{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},`, 4)+`{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"hi"}]}`,
			"A maximum of 4 blocks with cache_control may be provided. Found 5.", "https://github.com/anthropics/claude-code/issues/8901",
			func(c *checked) string {
				n := len(c.cacheMarks())
				return when(n > 4, fmt.Sprintf("A maximum of 4 blocks with cache_control may be provided. Found %d.", n))
			}),
		invalid("cache-ttl", "a breakpoint of one hour does not follow one of five minutes",
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`,
			"messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.", fromCaching,
			func(c *checked) string {
				short := false
				for _, m := range c.cacheMarks() {
					if m.ttl == "1h" && short {
						return m.path + ".cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
					}
					short = short || m.ttl != "1h"
				}
				return ""
			}),
		invalid("image-type", "an image in base64 is a JPEG, PNG, GIF or WebP", messages(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"AAAA"}}]}`),
			"messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", "https://github.com/anthropics/claude-code/issues/2438",
			func(c *checked) string {
				return c.eachImage(func(b checkedBlock, mediaType, _ string) string {
					return when(!slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, mediaType),
						b.path+".image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")
				})
			}),
		invalid("image-empty", "an image has bytes", messages(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}`),
			"messages.0.content.0.image.source.base64: image cannot be empty", "https://github.com/anthropics/claude-code/issues/12750",
			func(c *checked) string {
				return c.eachImage(func(b checkedBlock, _, data string) string {
					return when(data == "", b.path+".image.source.base64: image cannot be empty")
				})
			}),
		{
			Name: "image-size", Says: "an image has 5 MB of base64 at most",
			Status: 400, Type: "invalid_request_error", Message: "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 5242884 bytes > 5242880 bytes", Known: "https://github.com/anthropics/claude-code/issues/19631",
			Breaks: func() (http.Header, []byte) {
				return goodHeader(), []byte(messages(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", maxImage+4) + `"}}]}`))
			},
			check: func(c *checked) string {
				return c.eachImage(func(b checkedBlock, _, data string) string {
					return when(len(data) > maxImage, fmt.Sprintf("%s.image.source.base64: image exceeds 5 MB maximum: %d bytes > %d bytes", b.path, len(data), maxImage))
				})
			},
		},
		invalid("image-base64", "the data of an image is base64", messages(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"not base64!"}}]}`),
			"messages.0.content.0.image.source.base64: invalid base64 data", ownWords,
			func(c *checked) string {
				return c.eachImage(func(b checkedBlock, _, data string) string {
					_, err := base64.StdEncoding.DecodeString(data)
					return when(err != nil, b.path+".image.source.base64: invalid base64 data")
				})
			}),
		invalid("image-match", "an image is what its media type says", messages(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"R0lGODlhAQABAAAAACw="}}]}`),
			"messages.0.content.0.image.source.base64.data: Image does not match the provided media type image/png", "https://github.com/anthropics/claude-code/issues/15746",
			func(c *checked) string {
				return c.eachImage(func(b checkedBlock, mediaType, data string) string {
					raw, _ := base64.StdEncoding.DecodeString(data[:min(len(data), 1024)])
					switch found := http.DetectContentType(raw); {
					case found == mediaType:
						return ""
					case strings.HasPrefix(found, "image/"):
						return b.path + ".image.source.base64.data: Image does not match the provided media type " + mediaType
					}
					return "Could not process image"
				})
			}),
	}
}

// topLevel holds the members of a request that need no beta.
var topLevel = []string{"cache_control", "inference_geo", "max_tokens", "messages", "metadata", "model", "output_config", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"}

// blockTypes are the types of content blocks in messages, including betas.
var blockTypes = []string{
	"bash_code_execution_tool_result", "code_execution_tool_result", "compaction", "container_upload", "document", "fallback", "image",
	"mcp_tool_result", "mcp_tool_use", "redacted_thinking", "search_result", "server_tool_use", "text", "text_editor_code_execution_tool_result",
	"thinking", "tool_result", "tool_search_tool_result", "tool_use", "web_fetch_tool_result", "web_search_tool_result",
}

// resultTypes are the types of content blocks in a tool_result.
var resultTypes = []string{"document", "image", "search_result", "text", "tool_reference"}

// blockFields are the required members of a block, by type.
var blockFields = map[string][]struct{ name, begins, want string }{
	"text":              {{"text", `"`, "Input should be a valid string"}},
	"image":             {{"source", "{", "Input should be a valid dictionary or object to extract fields from"}},
	"document":          {{"source", "{", "Input should be a valid dictionary or object to extract fields from"}},
	"thinking":          {{"thinking", `"`, "Input should be a valid string"}, {"signature", `"`, "Input should be a valid string"}},
	"redacted_thinking": {{"data", `"`, "Input should be a valid string"}},
	"tool_use":          {{"id", `"`, "Input should be a valid string"}, {"name", `"`, "Input should be a valid string"}, {"input", "{", "Input should be a valid dictionary"}},
	"tool_result":       {{"tool_use_id", `"`, "Input should be a valid string"}},
}

var toolName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`) })

// goodBody and goodHeader are a request that breaks no rule.
const goodBody = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`

func goodHeader(without ...string) http.Header {
	h := http.Header{}
	h.Set("x-api-key", "test-key")
	h.Set("anthropic-version", "2023-06-01")
	h.Set("content-type", "application/json")
	for _, name := range without {
		h.Del(name)
	}
	return h
}

func messages(list string) string { return `{"model":"m","max_tokens":9,"messages":[` + list + `]}` }

func tool(list string, more ...string) string {
	more = append([]string{"{"}, more...)
	head := strings.Join(more, "")
	if len(more) > 1 {
		head += ","
	}
	return head + `"model":"m","max_tokens":9,"tools":[` + list + `],"messages":[{"role":"user","content":"hi"}]}`
}

// A checked is a request that is being checked.
type checked struct {
	r      *Request
	http   bool // it came over HTTP, so headers are checked
	count  bool // only counts tokens
	memory *memory

	rest     []byte // the body; a list of tools that was parsed earlier may be set aside in it
	jsonErr  error
	top      map[string]json.RawMessage
	messages []checkedMessage
	tools    []checkedTool
	thinking struct {
		Type   string   `json:"type"`
		Budget *float64 `json:"budget_tokens"`
	}
	choice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
}

type checkedMessage struct {
	role    string
	content json.RawMessage
	isText  bool
	text    string
	blocks  []checkedBlock
}

type checkedBlock struct {
	path     string // such as messages.0.content.1
	message  int
	role     string
	typ      string
	m        map[string]json.RawMessage
	inResult bool // inside a tool_result
	inner    []checkedBlock
}

type checkedTool struct {
	m      map[string]json.RawMessage
	schema map[string]json.RawMessage // nil if it is no object
	path   string                     // such as tools.0.custom
	name   string
	custom bool // defined by its schema, not one of the API's own
}

// memory holds the part of earlier answers that the API remembers: for each
// tool call that came with thinking, the thinking blocks before it.
type memory struct {
	mu       sync.Mutex
	thinking map[string]bool // by tool id
}

func (m *memory) remember(a *answer) {
	thought := false
	for _, b := range a.blocks {
		switch b.kind {
		case stepThink, stepRedacted:
			thought = true
		case stepCall:
			if thought {
				m.mu.Lock()
				if m.thinking == nil {
					m.thinking = map[string]bool{}
				}
				m.thinking[b.id] = true
				m.mu.Unlock()
			}
		}
	}
}

func (m *memory) thought(id string) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.thinking[id]
}

// refuse returns the refusal of the first rule that the request breaks, or nil
// if it breaks none.
func (c *checked) refuse() *Refusal {
	c.parse()
	for i := range rules {
		if msg := rules[i].check(c); msg != "" {
			return &Refusal{Rule: rules[i].Name, Status: rules[i].Status, Type: rules[i].Type, Message: msg}
		}
	}
	return nil
}

func (c *checked) parse() {
	if len(c.r.Body) > maxBody {
		return
	}
	rest, known := setAside(c.r.Body)
	if known != nil && json.Unmarshal(rest, &c.top) == nil && string(c.top["tools"]) == aside {
		c.rest, c.tools, c.top["tools"] = rest, known.checked, known.raw
	} else {
		c.rest, c.top = c.r.Body, nil
		var v json.RawMessage
		if c.jsonErr = json.Unmarshal(c.r.Body, &v); c.jsonErr != nil {
			return
		}
		if json.Unmarshal(c.r.Body, &c.top) != nil {
			return
		}
		c.tools = checkedTools(c.top["tools"])
	}
	json.Unmarshal(c.top["thinking"], &c.thinking)
	json.Unmarshal(c.top["tool_choice"], &c.choice)
	var list []json.RawMessage
	if json.Unmarshal(c.top["messages"], &list) == nil && list != nil {
		c.messages = []checkedMessage{}
	}
	for i, raw := range list {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		json.Unmarshal(raw, &m)
		cm := checkedMessage{role: m.Role, content: m.Content}
		cm.isText = json.Unmarshal(m.Content, &cm.text) == nil
		if !cm.isText {
			cm.blocks = checkedBlocks(m.Content, fmt.Sprintf("messages.%d.content", i), i, m.Role, false)
		}
		c.messages = append(c.messages, cm)
	}
}

// checkedTools returns the tools of a list, or nil if it is none.
func checkedTools(raw json.RawMessage) []checkedTool {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return nil
	}
	tools := make([]checkedTool, len(list))
	for i, raw := range list {
		t := &tools[i]
		json.Unmarshal(raw, &t.m)
		json.Unmarshal(t.m["input_schema"], &t.schema)
		t.name = stringOf(t.m["name"])
		typ := stringOf(t.m["type"])
		if t.custom = typ == "" || typ == "custom"; t.custom {
			typ = "custom"
		}
		t.path = fmt.Sprintf("tools.%d.%s", i, typ)
	}
	return tools
}

func checkedBlocks(content json.RawMessage, path string, message int, role string, inResult bool) []checkedBlock {
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil || list == nil {
		return nil
	}
	out := make([]checkedBlock, len(list))
	for i, raw := range list {
		b := checkedBlock{path: fmt.Sprintf("%s.%d", path, i), message: message, role: role, inResult: inResult}
		json.Unmarshal(raw, &b.m)
		b.typ = stringOf(b.m["type"])
		if b.typ == "tool_result" && !inResult {
			b.inner = checkedBlocks(b.m["content"], b.path+".tool_result.content", message, role, true)
		}
		out[i] = b
	}
	return out
}

// eachBlock calls check for every block, including those in tool results, until
// it returns a message.
func (c *checked) eachBlock(check func(checkedBlock) string) string {
	for _, m := range c.messages {
		for _, b := range m.blocks {
			if msg := check(b); msg != "" {
				return msg
			}
			for _, in := range b.inner {
				if msg := check(in); msg != "" {
					return msg
				}
			}
		}
	}
	return ""
}

// eachImage calls check for every base64 image.
func (c *checked) eachImage(check func(b checkedBlock, mediaType, data string) string) string {
	return c.eachBlock(func(b checkedBlock) string {
		if b.typ != "image" {
			return ""
		}
		var s struct {
			Type      string `json:"type"`
			MediaType string `json:"media_type"`
			Data      string `json:"data"`
		}
		if json.Unmarshal(b.m["source"], &s) != nil || s.Type != "base64" {
			return ""
		}
		return check(b, s.MediaType, s.Data)
	})
}

func (c *checked) eachTool(check func(path string, t checkedTool) string) string {
	for _, t := range c.tools {
		if msg := check(t.path, t); msg != "" {
			return msg
		}
	}
	return ""
}

// beta returns the betas that the request names.
func (c *checked) beta() string { return strings.Join(c.r.Header.Values("anthropic-beta"), ",") }

func (c *checked) thinks() bool {
	return c.thinking.Type == "enabled" || c.thinking.Type == "adaptive"
}

// latestAssistant returns the index of the last assistant message, or -1.
func (c *checked) latestAssistant() int {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.messages[i].role == "assistant" {
			return i
		}
	}
	return -1
}

func (c *checked) wantString(name string) string {
	raw, ok := c.top[name]
	if !ok {
		return name + ": " + required
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return name + ": Input should be a valid string"
	}
	return when(s == "", name+": String should have at least 1 character")
}

func (c *checked) number(name string) (n float64, ok bool, msg string) {
	raw, ok := c.top[name]
	if !ok || string(raw) == "null" {
		return 0, false, ""
	}
	if json.Unmarshal(raw, &n) != nil {
		return 0, false, name + ": Input should be a valid number"
	}
	return n, true, ""
}

type cacheMark struct{ path, ttl string }

// cacheMarks returns the cache breakpoints in the order of the cache.
func (c *checked) cacheMarks() []cacheMark {
	var out []cacheMark
	add := func(path string, m map[string]json.RawMessage) {
		if m["cache_control"] == nil {
			return
		}
		var cc *struct {
			TTL string `json:"ttl"`
		}
		if json.Unmarshal(m["cache_control"], &cc) == nil && cc != nil {
			out = append(out, cacheMark{path, cc.TTL})
		}
	}
	for i, t := range c.tools {
		add(fmt.Sprintf("tools.%d", i), t.m)
	}
	var system []map[string]json.RawMessage
	json.Unmarshal(c.top["system"], &system)
	for i, m := range system {
		add(fmt.Sprintf("system.%d", i), m)
	}
	c.eachBlock(func(b checkedBlock) string { add(b.path, b.m); return "" })
	add("", c.top)
	return out
}

func checkSystem(c *checked) string {
	raw, ok := c.top["system"]
	if !ok || string(raw) == "null" || json.Unmarshal(raw, new(string)) == nil {
		return ""
	}
	var blocks []map[string]json.RawMessage
	if json.Unmarshal(raw, &blocks) != nil {
		return "system: Input should be a valid list"
	}
	for i, b := range blocks {
		if typ := stringOf(b["type"]); typ != "text" {
			return fmt.Sprintf("system.%d.type: Input should be 'text'", i)
		}
		if stringOf(b["text"]) == "" {
			return "system: text content blocks must be non-empty"
		}
	}
	return ""
}

// A run is a sequence of messages with the same role, which the API treats as
// one. System messages are left out.
type run struct {
	role   string
	last   int // the index of its last message
	blocks []checkedBlock
}

func (c *checked) runs() []run {
	var out []run
	for i, m := range c.messages {
		if m.role == "system" {
			continue
		}
		blocks := m.blocks
		if m.isText {
			blocks = []checkedBlock{{typ: "text", message: i, role: m.role}}
		}
		if n := len(out); n > 0 && out[n-1].role == m.role {
			out[n-1].last = i
			out[n-1].blocks = append(slices.Clip(out[n-1].blocks), blocks...)
			continue
		}
		out = append(out, run{m.role, i, blocks})
	}
	return out
}

func checkToolUse(c *checked) string {
	runs := c.runs()
	for i, r := range runs {
		var missing []string
		for _, b := range r.blocks {
			if b.typ != "tool_use" {
				continue
			}
			id, answered := stringOf(b.m["id"]), false
			if i+1 < len(runs) {
				for _, res := range runs[i+1].blocks {
					if res.typ != "tool_result" {
						break
					}
					answered = answered || stringOf(res.m["tool_use_id"]) == id
				}
			}
			if !answered {
				missing = append(missing, id)
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", r.last, strings.Join(missing, ", "))
		}
	}
	return ""
}

func checkToolResult(c *checked) string {
	runs := c.runs()
	for i, r := range runs {
		for _, b := range r.blocks {
			if b.typ != "tool_result" {
				continue
			}
			id, called := stringOf(b.m["tool_use_id"]), false
			if i > 0 {
				for _, use := range runs[i-1].blocks {
					called = called || use.typ == "tool_use" && stringOf(use.m["id"]) == id
				}
			}
			if !called {
				return fmt.Sprintf("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", b.path, id)
			}
		}
	}
	return ""
}

// checkDroppedThinking checks only the last calls: the thinking of earlier ones
// may be left out.
func checkDroppedThinking(c *checked) string {
	if !c.thinks() {
		return ""
	}
	runs := c.runs()
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].role != "assistant" {
			continue
		}
		blocks := runs[i].blocks
		if len(blocks) == 0 || blocks[0].typ == "thinking" || blocks[0].typ == "redacted_thinking" {
			return ""
		}
		for _, b := range blocks {
			if b.typ == "tool_use" && c.memory.thought(stringOf(b.m["id"])) {
				return fmt.Sprintf("%s.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. %s", blocks[0].path, blocks[0].typ, thinkingDocs)
			}
		}
		return ""
	}
	return ""
}

// schemas caches the valid schemas, because the same ones recur.
var schemas = struct {
	sync.Mutex
	valid map[string]bool
}{valid: map[string]bool{}}

func validSchema(raw json.RawMessage) bool {
	schemas.Lock()
	defer schemas.Unlock()
	if ok, found := schemas.valid[string(raw)]; found {
		return ok
	}
	var s jsonschema.Schema
	err := json.Unmarshal(raw, &s)
	if err == nil {
		err = checkSchema(&s)
	}
	if err == nil {
		_, err = s.Resolve(nil)
		// The patterns of a schema are JavaScript expressions, which have more
		// features than the validator supports.
		if err != nil && strings.Contains(err.Error(), "regexp") {
			err = nil
		}
	}
	if len(schemas.valid) > 1000 {
		clear(schemas.valid)
	}
	schemas.valid[string(raw)] = err == nil
	return err == nil
}

// checkSchema checks the names of types, which the schema package does not.
func checkSchema(s *jsonschema.Schema) error {
	names := s.Types
	if s.Type != "" {
		names = append([]string{s.Type}, names...)
	}
	for _, t := range names {
		if !slices.Contains([]string{"array", "boolean", "integer", "null", "number", "object", "string"}, t) {
			return fmt.Errorf("unknown type %q", t)
		}
	}
	subs := []*jsonschema.Schema{s.Items, s.AdditionalProperties, s.Not, s.If, s.Then, s.Else, s.Contains, s.PropertyNames}
	subs = append(subs, s.AnyOf...)
	subs = append(subs, s.AllOf...)
	subs = append(subs, s.OneOf...)
	subs = append(subs, s.PrefixItems...)
	for _, m := range []map[string]*jsonschema.Schema{s.Properties, s.PatternProperties, s.Defs, s.Definitions} {
		for _, sub := range m {
			subs = append(subs, sub)
		}
	}
	for _, sub := range subs {
		if sub != nil {
			if err := checkSchema(sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// loneSurrogate returns the offset of an escaped high surrogate without a low
// one, or -1.
func loneSurrogate(b []byte) int {
	for i := 0; i+5 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if b[i+1] != 'u' {
			i++
			continue
		}
		if d := b[i+2] | 0x20; d == 'd' && strings.IndexByte("89abAB", b[i+3]) >= 0 {
			next := b[min(i+6, len(b)):]
			if len(next) < 4 || next[0] != '\\' || next[1] != 'u' || next[2]|0x20 != 'd' || strings.IndexByte("cdefCDEF", next[3]) < 0 {
				return i
			}
			i += 11
		}
	}
	return -1
}

func when(broken bool, message string) string {
	if broken {
		return message
	}
	return ""
}

func stringOf(raw json.RawMessage) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	var s string
	json.Unmarshal(raw, &s)
	return s
}

func quoted(names []string) string { return "'" + strings.Join(names, "', '") + "'" }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
