// Package peer is a scripted peer for either end of the protocol: a fake CLI to test
// SDKs with, and a fake host to test CLIs with, in memory and as processes. A bug of
// the protocol becomes a short text file.
//
// # A script
//
// A script is a txtar archive. Its comment describes what the script shows and which bug
// it pins. Its section steps has one step per line:
//
//	A host must answer a permission request.
//
//	-- steps --
//	< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}
//	> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{}}}
//	< {"type":"user"}
//	> {"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}
//	timeout 2s
//	< {"type":"control_response","response":{"request_id":"p1","response":{"behavior":"$answer"}}}
//	> {"type":"result","subtype":"success","is_error":false,"result":"it said ${answer}"}
//	< eof
//
// The script expects lines that start with < from the other side, and sends it lines
// that start with >, whichever side the script plays. Blank lines and lines that start
// with # are skipped. A malformed script is rejected before it is played, with file,
// line and reason (a [*ScriptError]).
//
// # Steps
//
//	< JSON             wait for a frame that matches (a subset, see below)
//	<? JSON            consume the next frame if it matches; continue if it does not, or none comes
//	< ...              skip frames until the next expectation is met
//	< text "LINE"      wait for a line that is not JSON
//	< eof              read to the end of the input
//	< exit N           wait until the other side has exited, with that status (Drive)
//	< stderr "TEXT"    wait until the other side has written the text to standard error (Drive)
//	> JSON             send a frame
//	raw "BYTES"        send exactly these bytes, quoted as in Go
//	stderr TEXT        write a line to standard error; quoted, exactly these bytes
//	close              end the output: the other side reads EOF
//	exit N             end with this exit status; without it a script ends with 0
//	signal NAME        send INT, TERM or KILL to the other side (Drive)
//	wait DURATION      do nothing for this time, not even read
//	timeout DURATION   the time limit of each later expectation (initially 10s)
//	! FAULT ARGS       misbehave, see below
//	param NAME VALUE   a parameter: $NAME in arguments and frames; see [Script.With]
//	argv JSON          the arguments for the script; see [Script]
//
// Instead of JSON, or of the bytes of raw, @NAME means the section of the archive with
// that name. There a frame can take several lines.
//
// An unexpected frame ends the play with a [*MismatchError], unless a rule handles it.
// Rules apply from their line on, whenever the script reads. The expectation itself is
// tried first, except for refuse:
//
//	refuse JSON                  a matching frame ends the play, even if it is expected
//	on JSON … end                the steps of the block answer a matching frame
//	ignore JSON                  a matching frame is dropped; keep_alive always is
//	others refuse|skip|keep      any other frame ends the play (the default), is dropped,
//	                             or is kept for a later expectation
//
// Blocks end with a line "end":
//
//	repeat N … end     run the steps N times; $i counts from 0
//	unordered … end    meet the expectations in any order; the steps between one
//	                   expectation and the next run when that one is met
//
// # Matching
//
// A pattern matches a subset. A pattern object matches an object that has at least its
// members. A pattern array matches an array of the same length, or a longer one if the
// last element of the pattern is "...". Numbers match by value. Some strings are special:
//
//	"$name"     a variable: its first place in the script binds it to the value there,
//	            each time that step runs; the value at other places must be equal
//	"$_"        any value; the member must be present
//	"$absent"   the member must be absent
//	"$~REGEXP"  a string that the regular expression matches
//	"${name}"   the variable as part of a longer string
//	"$$"        a dollar sign
//
// In a frame to send, "$name" becomes the value, of any type, and ${name} its text
// inside a string. $uuid is a new UUID at each place.
//
// # Misbehaviour
//
//	! half JSON               send the first half of a frame and no newline
//	! long-line SIZE          send an assistant message in one line of SIZE bytes (64KB, 20MB)
//	! stderr-flood SIZE MORE  write SIZE bytes without newline to standard error, then MORE in lines
//	! hang                    do nothing, not even read, until killed
//	! ignore-eof              serve to the end of the input, then hang
//	! ignore-signals          ignore SIGINT and SIGTERM from now on (process only)
//	! close-stdin             close the input, so that writes of the other side fail
//	! close-stdout            end the output, and continue
//	! grandchild [setsid]     start a process that holds all pipes and sleeps, in the same
//	                          process group or in a session of its own (process only)
//	! kill                    die as by kill -9
//	! die-after N             die as soon as N frames were expected or sent in total
//
// [Faults] returns ready scripts, by name, for the faults that an SDK must survive.
//
// # Playing
//
// [Play] plays a script over a reader and a writer, [Dialer] at the far end of a
// connection in memory. Both work in the virtual time of testing/synctest. [Command]
// makes a fake CLI to spawn, without another binary to build: it is the test binary
// itself, whose TestMain calls [RunIfChild] or [TestMain]. [Drive] plays the host
// against a command. [FromTranscript] makes a script of a recorded session, from
// either side, and every play can be recorded in that form.
//
// [parrot.Agent] is a fake CLI that needs no script, for benchmarks.
package peer
