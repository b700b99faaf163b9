package s3_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
	"github.com/parley-go/parley/stores/s3"
)

// The tests run against gofakes3, a server for tests that is compatible with S3, in this
// process on loopback: real HTTP, no real S3.

const bucket = "sessions"

// serve starts a server with a bucket and returns its address.
func serve(t *testing.T, around func(http.Handler) http.Handler) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(backend).Server()
	if around != nil {
		handler = around(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func client(address string) *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: aws.String("http://" + address), UsePathStyle: true, Region: "none",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
		RetryMaxAttempts: 2,
	})
}

func open(t *testing.T, address string, opts *s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.New(t.Context(), client(address), bucket, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) session.Store { return open(t, serve(t, nil), nil) })
}

// Two stores, as in two processes, make conflicting changes.
func TestTwoStores(t *testing.T) {
	address := serve(t, nil)
	a, b := open(t, address, nil), open(t, address, nil)
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	const each = 20
	done := make(chan error)
	for i, s := range []*s3.Store{a, b} {
		go func() {
			for n := range each {
				record := fmt.Appendf(nil, `{"type":"user","uuid":"%d-%d","text":%q}`, i, n, strings.Repeat("x", 3000))
				if err := s.Append(t.Context(), key, []json.RawMessage{record, record}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*s3.Store{a, b} {
		if got, err := s.Load(t.Context(), key); err != nil || len(got) != 2*each {
			t.Errorf("%d records, %v, want %d", len(got), err, 2*each)
		}
	}
	// No segment is left that no head names.
	named, err := client(address).ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String("parley/segments/")})
	if err != nil || len(named.Contents) == 0 {
		t.Fatalf("%d segments, %v: the test is about some", len(named.Contents), err)
	}
	if err := a.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	left, err := client(address).ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String("parley/segments/")})
	if err != nil || len(left.Contents) != 0 {
		t.Errorf("%d segments are left, %v", len(left.Contents), err)
	}
}

func TestTakeover(t *testing.T) {
	sessiontest.Takeover(t, serve(t, nil), 6*time.Second, func(t *testing.T, address string) session.Store {
		return open(t, address, &s3.Options{Lease: 1500 * time.Millisecond})
	})
}

// An answer that is lost: the write is there, and is not made twice.
func TestLostAnswer(t *testing.T) {
	lose := false
	address := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if lose && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "heads/") {
				lose = false
				h.ServeHTTP(httptest.NewRecorder(), r)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	s := open(t, address, nil)
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	for range 2 {
		lose = true
		if err := s.Append(t.Context(), key, []json.RawMessage{json.RawMessage(`{"type":"mode"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Load(t.Context(), key); err != nil || len(got) != 2 {
		t.Errorf("%d records, %v, want 2", len(got), err)
	}
}

// A server that ignores conditions is rejected.
func TestNoConditions(t *testing.T) {
	address := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
			h.ServeHTTP(w, r)
		})
	})
	if _, err := s3.New(t.Context(), client(address), bucket, nil); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("New: %v", err)
	}
	if _, err := s3.New(t.Context(), client(serve(t, nil)), "none", nil); err == nil {
		t.Error("New with a bucket that is not there: no error")
	}
}
