package parleytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"time"
)

// CacheUse is the effect of prompt caching on a request, in tokens as this
// package estimates them: four bytes each.
type CacheUse struct {
	Read      int // found in the cache
	Written   int // newly written, with the default lifetime
	Written1h int // newly written, with a lifetime of one hour
	Uncached  int // after the last breakpoint

	Breakpoints int // number of cache_control members in the request
}

// estimate converts a size in bytes to a number of tokens.
func estimate(bytes int) int { return (bytes + 3) / 4 }

// A cache stores the prefixes that requests marked. The order of a prefix is
// the API's: tools, system, messages.
type cache struct {
	entries map[[32]byte]time.Time // a prefix, and when it expires
}

// lookback is how many blocks before a breakpoint are searched for a prefix
// that an earlier request wrote. Source: the API's documentation of prompt
// caching.
const lookback = 20

// A cacheBlock is one block of a request's prefix.
type cacheBlock struct {
	data []byte // without cache_control
	ttl  time.Duration
	mark bool
}

// use looks a request up, and writes its marked prefixes.
func (c *cache) use(body *messagesBody, minimum int, now time.Time) CacheUse {
	blocks := prefixBlocks(body)
	h := sha256.New()
	h.Write([]byte(body.Model))
	sums := make([][32]byte, len(blocks))
	sizes := make([]int, len(blocks)) // tokens up to and including the block
	total := 0
	last := -1
	var use CacheUse
	for i, b := range blocks {
		h.Write(b.data)
		h.Write([]byte{0})
		h.Sum(sums[i][:0])
		total += len(b.data)
		sizes[i] = estimate(total)
		if b.mark {
			use.Breakpoints++
			if sizes[i] >= minimum {
				last = i
			}
		}
	}
	if last < 0 {
		use.Uncached = estimate(total)
		return use
	}
	hit := -1
search:
	for i := last; i >= 0; i-- {
		if !blocks[i].mark {
			continue
		}
		for j := i; j >= 0 && j > i-lookback; j-- {
			if exp, ok := c.entries[sums[j]]; ok && now.Before(exp) && j > hit {
				hit = j
				break search
			}
		}
	}
	if hit >= 0 {
		use.Read = sizes[hit]
	}
	if c.entries == nil {
		c.entries = map[[32]byte]time.Time{}
	}
	from := use.Read
	for i, b := range blocks[:last+1] {
		if !b.mark || sizes[i] < minimum {
			continue
		}
		c.entries[sums[i]] = now.Add(b.ttl)
		if i > hit {
			if b.ttl > 5*time.Minute {
				use.Written1h += sizes[i] - from
			} else {
				use.Written += sizes[i] - from
			}
			from = sizes[i]
		}
	}
	if hit >= 0 { // a read extends the lifetime
		ttl := 5 * time.Minute
		if blocks[hit].mark {
			ttl = blocks[hit].ttl
		}
		if exp := now.Add(ttl); exp.After(c.entries[sums[hit]]) {
			c.entries[sums[hit]] = exp
		}
	}
	use.Uncached = estimate(total) - sizes[last]
	return use
}

// prefixBlocks splits a request in the order of the cache.
func prefixBlocks(body *messagesBody) []cacheBlock {
	var out []cacheBlock
	add := func(where string, raw json.RawMessage) {
		out = append(out, newCacheBlock(where, raw))
	}
	for _, t := range body.Tools {
		add("tool", t.raw)
	}
	content := func(where string, raw json.RawMessage) {
		var list []json.RawMessage
		if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
			for _, b := range list {
				add(where, b)
			}
		} else if len(raw) > 0 {
			// A string is short for one text block.
			b := append([]byte(`{"text":`), raw...)
			add(where, append(b, `,"type":"text"}`...))
		}
	}
	content("system", body.System)
	for _, m := range body.Messages {
		content(m.Role, m.Content)
	}
	return out
}

func newCacheBlock(where string, raw json.RawMessage) cacheBlock {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return cacheBlock{data: append([]byte(where+" "), raw...)}
	}
	b := cacheBlock{}
	if cc, ok := m["cache_control"]; ok {
		delete(m, "cache_control")
		if !bytes.Equal(bytes.TrimSpace(cc), []byte("null")) {
			b.mark, b.ttl = true, 5*time.Minute
			var v struct{ TTL string }
			if json.Unmarshal(cc, &v) == nil && v.TTL == "1h" {
				b.ttl = time.Hour
			}
		}
	}
	data, _ := json.Marshal(m)
	b.data = append([]byte(where+" "), data...)
	return b
}
