// Package agent is the agent's end of the protocol.
//
// [Serve] speaks it over a reader and a writer: it takes prompts and control
// requests from a host, holds the conversation with package engine, and owns the
// order of what is told and how it ends. [InProcess] is a dialer for the SDK that
// runs the agent in the same process: no subprocess, nothing shared between
// sessions. [Run] is the parley command without its subcommands.
package agent
