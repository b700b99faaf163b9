package engine

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// nearLimit is the used share of a limit at which a warning is emitted.
const nearLimit = 0.8

// limits returns the rate limits in the header of a response: those of a subscription,
// which have one state for all, or those of an API key. It returns nil if there are
// none.
func limits(status int, h http.Header, retryAfter time.Duration, now time.Time) *wire.RateLimitInfo {
	const unified = "Anthropic-Ratelimit-Unified-"
	if s := h.Get(unified + "Status"); s != "" {
		info := &wire.RateLimitInfo{Status: s, RateLimitType: h.Get(unified + "Representative-Claim"), ResetsAt: moment(h.Get(unified + "Reset"))}
		short := map[string]string{"five_hour": "5h-", "seven_day": "7d-", "seven_day_opus": "7d_opus-", "seven_day_sonnet": "7d_sonnet-"}[info.RateLimitType]
		if u, err := strconv.ParseFloat(h.Get(unified+short+"Utilization"), 64); err == nil {
			info.Utilization = &u
		}
		if info.ResetsAt == 0 {
			info.ResetsAt = moment(h.Get(unified + short + "Reset"))
		}
		if u, err := strconv.ParseFloat(h.Get(unified+short+"Surpassed-Threshold"), 64); err == nil {
			info.SurpassedThreshold = &u
		}
		info.OverageStatus = h.Get(unified + "Overage-Status")
		info.OverageResetsAt = moment(h.Get(unified + "Overage-Reset"))
		info.OverageDisabledReason = h.Get(unified + "Overage-Disabled-Reason")
		info.IsUsingOverage = info.RateLimitType == "overage" || s == "rejected" && strings.HasPrefix(info.OverageStatus, "allowed")
		return info
	}
	info := &wire.RateLimitInfo{Status: "allowed"}
	for _, scope := range []string{"requests", "tokens", "input_tokens", "output_tokens"} {
		name := "Anthropic-Ratelimit-" + strings.ReplaceAll(scope, "_", "-") + "-"
		limit, err1 := strconv.ParseFloat(h.Get(name+"Limit"), 64)
		left, err2 := strconv.ParseFloat(h.Get(name+"Remaining"), 64)
		if err1 != nil || err2 != nil || limit <= 0 {
			continue
		}
		if used := min(max(1-left/limit, 0), 1); info.Utilization == nil || used > *info.Utilization {
			info.Utilization, info.LimitScope, info.ResetsAt = &used, scope, moment(h.Get(name+"Reset"))
		}
	}
	switch {
	case status == http.StatusTooManyRequests:
		info.Status = "rejected"
		if retryAfter > 0 && info.ResetsAt == 0 {
			info.ResetsAt = now.Add(retryAfter).Unix()
		}
	case info.Utilization == nil:
		return nil
	case *info.Utilization >= nearLimit:
		info.Status = "allowed_warning"
	}
	return info
}

// moment parses a time in seconds since 1970 or as a date. It returns 0 if it is
// neither.
func moment(s string) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 {
		return n
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at.Unix()
	}
	return 0
}
