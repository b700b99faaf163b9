// Package parleytest tests agents without a key and without a network.
//
// A [Scenario] lists the model's answers, turn by turn, and what each request must
// contain. The same scenario is played
//
//   - in process, as a [Model] for the engine ([Scenario.Model]);
//   - over loopback, as a strict fake of the Messages API ([NewAPI]); set
//     ANTHROPIC_BASE_URL to point any agent in any language at it;
//   - by the same server as an OpenAI-compatible API (POST /v1/chat/completions).
//
// A [Cassette] records traffic with a real API and replays it offline.
//
// The package reads only the files it is given and uses no network but loopback.
// The exception is a recorder, which connects to its upstream. Of the engine, the
// package uses only the model interface.
//
// # Scenarios in Go
//
// A script is a list of turns, one for each request. A turn starts with any of
// [Say], [Think], [Call], [Block], [Pause], [Expect], [Fail], [Reset] and
// [FirstOf], and its methods add to it:
//
//	s := parleytest.Script(
//		parleytest.Expect(parleytest.LastUser("fix")).
//			Say("I look at it first.").
//			Call("Read", `{"file_path":"a.txt"}`),
//		parleytest.FirstOf(
//			parleytest.Expect(parleytest.ToolError("")).Say("I cannot read it."),
//			parleytest.Expect(parleytest.ToolResult("bug")).Say("There it is."),
//		),
//	)
//
// A request that does not match its turn, or for which no turn is left, fails the
// test. The response is an error that shows the expected and the received request.
// Turns without a request fail the test, too: see [Model.Done] and [API.Done]. NewAPI
// calls Done when the test ends.
//
// Requests outside the conversation, of subagents or for a title, need scripts of
// their own: [Scenario.When] adds a script for the requests that a matcher matches.
// [Turn.Goto] continues in another script, [Turn.Times] and [Turn.Always] repeat a
// turn, and [Scenario.Default] answers all other requests.
//
// # Faults
//
// A turn can fail with any status ([Turn.Fail], [Turn.RetryAfter],
// [Turn.Header]), and a stream can break at any event: [Turn.Cut],
// [Turn.CutClean], [Turn.Reset], [Turn.Malformed], [Turn.StreamError],
// [Turn.Stall]; [Turn.Pause], [Turn.Drip], [Turn.Ping] and [Turn.Chunks] change
// its pace. A fault takes effect where it is written, between two blocks, or after a
// number of events:
//
//	parleytest.Say("Hello there").Cut().After(3) // message_start, content_block_start, one delta
//
// A Model waits with package time only, so a stall of an hour takes no time inside a
// bubble of testing/synctest.
//
// # The strict API
//
// [API] rejects the requests that the real API rejects, with the same status and
// body. All its rules are in one table ([Rules], and [ChatRules] for the OpenAI API);
// each has a request that breaks it and the source of its response. The signature of a
// thinking block depends on its text, so even another server notices a change.
// [API.Requests] returns every request for assertions, without keys, and with the
// usage of prompt caching ([CacheUse]).
//
// # Script files
//
// A scenario can be written as text, with all features except for [Check].
// [ParseScript] reads it and [Format] writes it:
//
//	# Lines that start with # are comments. Indentation is free.
//	turn
//		expect user fix the greeting
//		think The file first.
//		say I look at the file.
//		call Read {"file_path": "hello.txt"}
//	turn
//		expect tool-error
//		say There is no such file.
//	or
//		expect result ~ (?i)hello
//		say Found it.
//
// Each line is a word and its arguments. These words divide a file into
// scripts and turns:
//
//	turn               starts a turn
//	or                 starts an alternative to the turn before it
//	default            starts the turn that answers when a script has ended
//	script NAME        starts another script; turns before the first belong to main
//	when MATCHER       after script: the requests for this script; all matchers must match
//	each               after script: the script starts again for each conversation
//	count-tokens N     the answer of the token counting endpoint
//
// These words are the content of a turn, in order:
//
//	say TEXT           a text block; several quoted texts are its pieces
//	think TEXT         a thinking block
//	redacted TEXT      a redacted_thinking block
//	call NAME JSON     a tool call; call NAME id=ID JSON sets its id
//	block JSON         any other block
//
// These words set its pace and its faults. They take effect in place, or, written
// anywhere as "after N WORD …", after N events:
//
//	pause 200ms        waits
//	ping               sends a ping event
//	cut                breaks the connection
//	cut-clean          ends the stream early
//	reset              resets the connection
//	stall              sends nothing more
//	malformed TEXT     sends an event whose data is the text
//	error TYPE TEXT    ends with an error event
//
// These words are for the turn as a whole, in any order:
//
//	expect MATCHER     a condition for the request
//	fail STATUS TEXT   rejects the request; the text is optional
//	error-type TYPE    the type of the error, if it is not the usual one
//	retry-after 1s     the retry-after header of the response
//	header NAME TEXT   any other header of the response
//	stop REASON        the stop reason
//	stop-sequence TEXT the stop sequence, and the reason with it
//	usage ITEM=N …     input, output, cache-write, cache-write-1h, cache-read, web-search
//	chunks N           bytes in a delta
//	drip 10ms          waits between events
//	times N            answers N requests
//	always             answers every request from here on
//	goto NAME          continues with another script
//
// A matcher is a kind and a text that must occur. A text after = must be the whole
// text, and a text after ~ is a regular expression. The word not before the kind
// negates the matcher:
//
//	user, first-user   the text of the last or the first user message
//	system             the system prompt
//	result             a tool result; tool-error: one that is an error
//	tools NAME …       the tools in the request
//	model              the requested model
//	body               the whole request, as JSON
//	field PATH         a member of the request, such as thinking.type
//	header NAME        a header of the request
//
// TEXT is the rest of the line, or one or more quoted Go strings. After <<END, it is
// the lines up to a line END; any tag works. JSON is written in the same ways; in
// quotes it may be malformed.
//
// # Cassettes
//
// [NewRecorder] forwards traffic to an API and writes it to a file; [NewPlayer] and
// [Replay] answer from the file. The comparison of requests ignores values that change
// from run to run: ids, dates, times, temporary and home directories, and the values
// that [CassetteOptions] name. A request that is not in the cassette fails with a diff
// to the nearest one. Keys are not written to the file. The exception is a secret that
// a model repeats in pieces, one piece per event: it cannot be detected.
package parleytest
