package session

import (
	"encoding/json"
	"time"
)

// Mirror returns a log that calls report with the records that are written to log and to
// its parts, before Append returns. It works with any store. report must not block.
func Mirror(log Log, report func(key Key, records []json.RawMessage)) Log {
	m := &mirroredLog{Log: log, key: Key{Session: log.ID()}, encoder: newEncoder(Meta{ID: log.ID()}), report: report}
	if own, ok := log.(interface{ encoding() (Key, *encoder) }); ok {
		m.key, m.encoder = own.encoding()
	}
	return m
}

type mirroredLog struct {
	Log
	key     Key
	encoder *encoder // the encoder of the log
	report  func(key Key, records []json.RawMessage)
}

// Append implements [Log].
func (l *mirroredLog) Append(entries ...*Entry) error {
	dated := make([]*Entry, len(entries))
	for i, e := range entries {
		if e != nil && e.UUID != "" && e.Time.IsZero() { // use the same time in both places
			dup := *e
			dup.Time = time.Now()
			e = &dup
		}
		dated[i] = e
	}
	if err := l.Log.Append(dated...); err != nil || len(entries) == 0 {
		return err
	}
	records, err := l.encoder.records(dated)
	if err == nil {
		l.report(l.key, records)
	}
	return err
}

// Sub implements [Log].
func (l *mirroredLog) Sub(name string) (Log, error) {
	part, err := l.Log.Sub(name)
	if err != nil {
		return nil, err
	}
	return Mirror(part, l.report), nil
}
