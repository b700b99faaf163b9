// Package serve puts a hub on the network, so that people, programs and pages can drive its sessions from
// anywhere without missing anything.
//
// A [Server] offers its interfaces on one port, and on a unix socket for the programs of its user. All of
// them require a token, except that socket.
//
// # Tokens
//
// Every device and program has its own token, with one scope: view, approve, drive or admin, each of which
// includes the ones before it, or agent, which only runs a session on another machine. The server stores only
// the SHA-256 of a token. A request carries the token as "Authorization: Bearer TOKEN" or in the cookie of a
// page that logged in, never in its URL. Revoking a token ends its streams at once.
//
// # How a page logs in
//
// A page is opened by the link http://HOST/#t=TOKEN. The part after # never leaves the browser by itself.
// The page reads it, removes it with history.replaceState, and sends
//
//	POST /v1/login   {"token": "TOKEN"}
//
// The response sets an HttpOnly, SameSite=Strict cookie, which the browser adds to every later request of
// the page, including WebSockets. GET /v1/me returns who is logged in (401: nobody is); POST /v1/logout
// removes the cookie. The page's files are mounted at "/" by [Config.Console] and are the only thing that
// needs no token; they hold no data. The Content-Security-Policy is default-src 'self': no inline scripts
// and styles.
//
// # What a page reads
//
// WebSockets send text messages, one JSON value each, and expect none.
//
//	GET /v1/watch                         every session (a [hub.Info]), then each one that changes
//	GET /v1/sessions/{id}/watch?after=N   entries with a number above N, then the state, then new entries
//
// A message of the second stream is an entry of the journal, {"n":7,"kind":"frame","data":{…}}. Entries with a
// number arrive exactly once and in order; a page that reconnects sends the last number that it has and
// misses nothing. A viewer that is too slow is closed with the code [CloseLagged], and one whose token was
// revoked with [CloseRevoked]. The first can reconnect at once; the second needs another token. The same data is available as
// server-sent events, at /v1/events and /v1/sessions/{id}/events, resumed by Last-Event-ID.
//
// Everything else is the JSON API below /v1/, which /openapi.json describes. GET changes nothing. An error
// is {"error":{"code":"…","message":"…"}}.
//
// # Native frames
//
// Hosts that speak the protocol itself, such as the browser build of the official TypeScript SDK and this
// module's SDK, attach at /v1/sessions/{id}/ws or at /v1/code/sessions/{id}/events/stream and
// /v1/code/sessions/{id}/events: see native.go.
package serve
