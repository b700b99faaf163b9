package fleet

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server"
)

// The server has no options for these times. With its defaults, a leader that died is replaced after 4 to 9 seconds,
// and no session can be written or taken over meanwhile. TestElectionTimes fails if a new version of the server has
// other variables.

//go:linkname heartbeat github.com/nats-io/nats-server/v2/server.hbInterval
var heartbeat time.Duration

//go:linkname minElection github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElection time.Duration

//go:linkname maxElection github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElection time.Duration

// serverTimes are the times of the server before this package changes them.
var serverTimes = [...]time.Duration{heartbeat, minElection, maxElection}

func init() {
	heartbeat, minElection, maxElection = 500*time.Millisecond, 1500*time.Millisecond, 3500*time.Millisecond
}
