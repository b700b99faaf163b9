// Package peer is a scripted peer for either end of the protocol: a fake CLI to test
// SDKs with, and a fake host to test CLIs with, in memory and as processes. A bug of
// the protocol becomes a short text file.
//
// # A script
//
// A script is a txtar archive: prose that says what it shows and which bug it pins,
// and a section named steps, one step per line:
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
// A line that starts with < is expected from the other side, a line that starts with > is sent to
// it, whichever side the script plays. Blank lines and lines that begin with # are
// skipped. A script that is malformed is refused before it is played, with file,
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
//	< stderr "TEXT"    wait until the other side has written that to standard error (Drive)
//	> JSON             send a frame
//	raw "BYTES"        send bytes as they are, quoted as in Go
//	stderr TEXT        write a line to standard error; quoted, exactly these bytes
//	close              end the output: the other side reads EOF
//	exit N             end with this exit status; without it a script ends with 0
//	signal NAME        send INT, TERM or KILL to the other side (Drive)
//	wait DURATION      do nothing for this time; nothing is read meanwhile
//	timeout DURATION   the time for each later expectation (10s at first)
//	! FAULT ARGS       misbehave, see below
//	param NAME VALUE   a parameter: $NAME in arguments and frames; see [Script.With]
//	argv JSON          the arguments the script belongs to; see [Script]
//
// In place of JSON, and of the bytes of raw, @NAME stands for the section of the
// archive with that name, where a frame may be written on many lines.
//
// A frame that is not the one expected ends the play with a [*MismatchError], unless
// a rule says what to do with it. Rules hold from their line on, whenever the script
// reads, and come after the expectation itself:
//
//	refuse JSON                  a frame that matches ends the play, even where one is expected
//	on JSON … end                a frame that matches is answered by the steps of the block
//	ignore JSON                  a frame that matches is dropped; keep_alive always is
//	others refuse|skip|keep      any other frame: ends the play (as at first), is dropped,
//	                             or is kept for an expectation further down
//
// Blocks end with a line "end":
//
//	repeat N … end     the steps N times; $i counts from 0
//	unordered … end    the expectations in any order; the steps after each one, up to the
//	                   next, are done when it was met
//
// # Matching
//
// A pattern matches a subset: an object matches one that has at least its members, an
// array one of the same length, or a longer one if the last element of the pattern is
// "...". Numbers match by value. Some strings are special:
//
//	"$name"     a variable: the first place in the script that names it binds it to
//	            whatever is there, each time that step runs; other places must be equal
//	"$_"        anything, but present
//	"$absent"   the member is not there
//	"$~REGEXP"  a string that the regular expression matches
//	"${name}"   the variable as part of a longer string
//	"$$"        a dollar sign
//
// In a frame to send, "$name" becomes the value, of whatever type, and ${name} its
// text inside a string. $uuid is a new one at each place.
//
// # Misbehaviour
//
//	! half JSON               send the first half of a frame and no newline
//	! long-line SIZE          send an assistant message in one line of SIZE bytes (64KB, 20MB)
//	! stderr-flood SIZE MORE  write SIZE bytes without newline to standard error, then MORE in lines
//	! hang                    do nothing, not even read, until killed
//	! ignore-eof              serve to the end of the input, then hang
//	! ignore-signals          ignore SIGINT and SIGTERM from now on (process only)
//	! close-stdin             read nothing more, and let the other side notice
//	! close-stdout            end the output, and continue
//	! grandchild [setsid]     start a process that holds all pipes and sleeps, in the same
//	                          process group or in a session of its own (process only)
//	! kill                    die as by kill -9
//	! die-after N             die as soon as N frames were expected or sent in all
//
// [Faults] returns ready scripts, by name, for what an SDK must survive.
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
