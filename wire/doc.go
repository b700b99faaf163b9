// Package wire is the Claude Agent SDK protocol as Go types.
//
// The protocol is one JSON object per line, in both directions. [Decode] decodes a
// line, [Encode] encodes one, and a [Reader] reads a stream of them:
//
//	r := wire.NewReader(stdout, nil)
//	for m, err := range r.All() {
//		switch m := m.(type) {
//		case *wire.Assistant:
//			fmt.Println(m.Message.Content)
//		case *wire.Result:
//			fmt.Println(m.Outcome(), m.TotalCostUSD)
//		}
//	}
//
// # Nothing is lost
//
// Peers of this protocol change every day. Members without a field in the Go type are
// kept in its Extra map, at any depth, and so is a value of a shape that its field
// cannot hold; messages, content blocks, control requests, hook inputs and hook
// outputs of unknown kinds are [*Unknown], [*UnknownBlock], [*UnknownRequest],
// [*UnknownInput] and [*UnknownOutput]; enumerations are strings. A decoded value
// encodes to JSON with the same meaning as its source. This includes an explicit null,
// a zero that was written out, and 1.0 for an integer. If you change a field, the new
// value is encoded. The same holds for encoding/json.
//
// Text that is not quite JSON is read as most peers read it: if a name occurs twice,
// the last member counts, and U+FFFD replaces bytes that are not UTF-8.
//
// # Dialects
//
// Several documents describe this protocol, and they differ. Different spellings of
// one thing are decoded to one Go value: see [Result.Outcome], [Result.Usage],
// [Assistant.Error], [Init.Tools] and [HookCallback].
//
// # The specification
//
// docs/protocol.md specifies the messages and their order;
// docs/protocol.schema.json is a JSON Schema of all of them. Its definitions and the
// tables of docs/protocol.md are generated from the structs, tags and comments of
// this package:
//
//	go test ./wire -run 'TestSchema|TestTables' -update
//
// A field whose tag has no omitzero is always written. The schema requires it as well,
// unless its wire tag says "null" (written as null when empty) or "optional" (others may
// leave it out).
//
// # What is not here
//
// The package has no processes, no pipes and no order of messages. It imports
// nothing of this module.
package wire
