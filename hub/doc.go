// Package hub runs sessions that outlive their connections.
//
// A session is a conversation with an agent, to which any number of people, programs and schedules attach. The
// session's journal records everything that they see, and every prompt, question, answer and owner, as entries
// numbered 1, 2, 3 … A viewer that attaches names the last number that it has and receives every later entry
// exactly once and in order, across reconnects, crashes and changes of the owner.
//
// # Front ends
//
// A terminal, a server or an editor uses a hub through a [Client]. It is the same for a hub in this process
// ([Hub.Client]), for one in another process (socket.NewClient), and for whichever is running: socket.Join joins
// the running hub, holds one in this process if there is none, and continues with the next one when a hub is
// killed.
//
//	c, err := socket.Join(ctx, path, me, nil, func(socket.Own) (*hub.Hub, error) { return hub.New(cfg) })
//	defer c.Close()
//
//	id, err := c.Create(ctx, hub.Spec{Cwd: cwd, Agent: hub.Args{Args: []string{"--model", "opus"}}.Spec()})
//	err = c.Open(ctx, hub.Spec{ID: old, Agent: spec})                              // resume with other options
//	id, err = c.Create(ctx, hub.Spec{From: &hub.Reference{Session: old, N: n}})    // fork
//
//	uuid, err := c.Prompt(ctx, id, wire.Prompt(wire.Text("Which tests are flaky?")))
//	for e, err := range c.Attach(ctx, id, after) { // entries after the number, state, then live
//		switch e.Kind {
//		case hub.KindFrame, hub.KindLive: // wire.Decode(e.Data): a message; live ones are chunks and progress
//		case hub.KindAsk: // a hub.Ask: c.Answer(ctx, id, hub.Allow(&ask)) or hub.Deny(&ask, reason)
//		case hub.KindState: // a hub.State
//		}
//	}
//	err = hub.Call(ctx, c, id, &wire.SetModel{Model: "sonnet"}, nil) // any control request
//	link, err := c.Host(ctx, id, hub.HostOptions{Initialize: …, Handle: …}) // hooks, tools, callbacks
//
// A viewer keeps the number of the last entry that it received. When Attach ends with a [*LaggedError], it
// attaches again after that number. Chunks of an answer may be left out; the complete message always follows as
// a frame.
//
// A session that another process holds can be watched, prompted, answered and interrupted. Its viewers receive
// whole messages, and pieces if the backend is a [Broadcaster]. Calls that need its agent, such as Rewind and
// Host, are passed on if the backend is a [Caller], and return [ErrLocked] otherwise.
//
// # The journal
//
// An [Entry] is a frame (a message of the agent, as every viewer receives it), an entry of the hub itself (a
// prompt, a question, an answer, a new owner …), or a record of the agent's session log. Frames and entries of
// the hub have a number; records have none. Transient messages, such as the chunks of an answer that is being
// written, go to viewers and not into the journal.
//
// The order is always the same: first the agent's record, then the frame that shows it, then the viewers. After
// a crash the journal may lack frames of the last records, never the reverse. The hub adds those frames, marked
// as recovered, when it opens the session. Entries never change: a conversation that is rewound, cleared or
// compacted continues with new entries.
//
// # Backends
//
// A [Backend] stores journals. [Files] is for one machine, [Memory] for tests and simulations. A session has one
// owner: a process that holds its lease and has appended an owner entry. Every append names the number that it
// expects to be the last; an owner that was paused and replaced expects the wrong one and fails.
//
// The package has no network types and waits only for channels, timers and short system calls, so that it runs
// inside testing/synctest.
package hub
