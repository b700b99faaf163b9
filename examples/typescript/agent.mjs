// The official TypeScript SDK, with parley in place of the CLI that comes with it:
// one option is all that changes.
//
//	npm install @anthropic-ai/claude-agent-sdk
//	CLAUDE_BIN=$(command -v parley) node agent.mjs
import { query } from "@anthropic-ai/claude-agent-sdk";

const messages = query({
  prompt: "What does notes.txt say?",
  options: {
    pathToClaudeCodeExecutable: process.env.CLAUDE_BIN ?? "parley",
    allowedTools: ["Read"],
  },
});
for await (const message of messages) {
  if (message.type === "system" && message.subtype === "init") console.log("tools:", message.tools.includes("Read"));
  if (message.type === "result") console.log(message.result);
}
