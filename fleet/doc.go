// Package fleet runs the sessions of a hub on many machines.
//
// A [Backend] stores journals, inboxes and leases in NATS JetStream, embedded in this process
// ([StartServer]) or in an existing cluster. Every process that opens one with the same name
// sees the same sessions: it can run them, show them, and answer their questions.
//
//	s, err := fleet.StartServer(fleet.ServerConfig{Name: "one", Dir: dir})
//	nc, err := fleet.Connect(s)
//	b, err := fleet.Open(ctx, fleet.Config{Conn: nc})
//	h, err := hub.New(hub.Config{Backend: b, Agent: …})
//
// # The log is the lock
//
// Each session is one subject of one stream. An append names the message that it expects to be
// the last of its session, and otherwise the server rejects it. So a process that was paused,
// and whose session another process took over meanwhile, cannot write. Leases only determine
// who should try.
//
// # Subjects and buckets
//
//	<name>.log.<session>        the journal; entries that are appended together are one message
//	<name>.in.<session>.<key>   the inbox: each item has a subject, so it is created once
//	<name>.in.<session>.end     stored when the session rests, with the number of the last item
//	<name>.work.<session>       exists while the session has work to do
//	<name>.piece.<session>      pieces of answers for those who watch; not stored
//	KV <name>-leases            which process runs a session
//	KV <name>-workers           which processes are alive; entries expire
//	Objects <name>-blobs        entries of more than 256 KB
//
// Viewers need no consumer: they subscribe to the messages that the server republishes, read
// the stored messages, and skip duplicates by sequence.
package fleet
