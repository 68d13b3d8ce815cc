package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
)

// keys are a provider's published keys: fetched when first needed, again when
// they get old or a token names one that is not among them, and kept while they
// cannot be had.
type keys struct {
	o      Options
	client *http.Client
	// base ends with close, and with it the fetches under way.
	base context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	set     jwk.Set // nil: never had
	fetched time.Time
	tried   time.Time // when the last fetch began
	failed  error     // how it ended
	under   chan struct{}
}

func newKeys(ctx context.Context, o Options) (*keys, error) {
	for _, u := range []string{o.KeysURL, o.Issuer} {
		if o.KeysFile != "" || u == "" {
			continue
		}
		if err := checkURL(u, o.AllowHTTP); err != nil {
			return nil, err
		}
		break // without KeysURL, the issuer is one
	}
	k := &keys{o: o, client: o.Client}
	if k.client == nil {
		t, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, errors.New("there is no HTTP transport")
		}
		k.client = &http.Client{Transport: t.Clone(), Timeout: 5 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the provider redirects") }}
	}
	k.base, k.end = context.WithCancel(ctx)
	if o.KeysFile != "" {
		// A file that cannot be read is a mistake that is seen at once.
		if _, err := k.get(k.base); err != nil {
			k.end()
			return nil, err
		}
	}
	return k, nil
}

func checkURL(s string, allowHTTP bool) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !allowHTTP) {
		return errors.New("the issuer, or where its keys are, must be an https URL")
	}
	return nil
}

func (k *keys) close() {
	k.end()
	k.wg.Wait()
	k.client.CloseIdleConnections()
}

// find gives the keys that a token may be signed with: those of its kid, or, if
// it names none, all that fit its algorithm.
func (k *keys) find(ctx context.Context, kid string, alg jwa.SignatureAlgorithm) ([]jwk.Key, error) {
	k.mu.Lock()
	now := k.o.Now()
	set, age := k.set, now.Sub(k.fetched)
	switch {
	case set == nil || age > k.o.MaxStale:
		if k.under == nil && k.failed != nil && now.Sub(k.tried) < k.o.Retry {
			err := k.failed
			k.mu.Unlock()
			return nil, err
		}
		k.begin(now)
		return k.wait(ctx, kid, alg)
	case age > k.o.Refresh && now.Sub(k.tried) >= k.o.Retry:
		k.begin(now) // in the background: the old ones still count
	}
	if got := fitting(set, kid, alg); len(got) > 0 {
		k.mu.Unlock()
		return got, nil
	}
	// The provider may have changed its keys since.
	if k.under == nil && now.Sub(k.tried) < k.o.Retry {
		err := k.failed
		k.mu.Unlock()
		return nil, err // not known, or not known whether it is known
	}
	k.begin(now)
	return k.wait(ctx, kid, alg)
}

// wait lets the lock go, waits for the fetch under way and looks again.
func (k *keys) wait(ctx context.Context, kid string, alg jwa.SignatureAlgorithm) ([]jwk.Key, error) {
	under := k.under
	k.mu.Unlock()
	select {
	case <-under:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		return nil, k.failed
	}
	return fitting(k.set, kid, alg), nil
}

// begin starts a fetch unless one is under way; the caller holds the lock.
func (k *keys) begin(now time.Time) {
	if k.under != nil {
		return
	}
	done := make(chan struct{})
	k.under, k.tried = done, now
	k.wg.Go(func() {
		set, err := k.get(k.base)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err == nil {
			k.set, k.fetched = set, now
		}
		k.failed, k.under = err, nil
		close(done)
	})
}

// get reads the keys from where they are.
func (k *keys) get(ctx context.Context) (jwk.Set, error) {
	var raw []byte
	var err error
	if k.o.KeysFile != "" {
		raw, err = os.ReadFile(k.o.KeysFile)
	} else {
		from := k.o.KeysURL
		if from == "" {
			if from, err = k.discover(ctx); err != nil {
				return nil, err
			}
		}
		raw, err = k.fetch(ctx, from)
	}
	if err != nil {
		return nil, fmt.Errorf("the issuer's keys cannot be had: %w", err)
	}
	// One key that is not understood must not take the others away: providers
	// publish keys of kinds that only some of their clients need.
	set, err := jwk.Parse(raw, jwk.WithIgnoreParseError(true))
	if err != nil || set.Len() == 0 {
		return nil, errors.New("the issuer's keys cannot be read")
	}
	return set, nil
}

// discover finds where the keys are by OpenID Connect Discovery 1.0 §4.
func (k *keys) discover(ctx context.Context) (string, error) {
	raw, err := k.fetch(ctx, strings.TrimSuffix(k.o.Issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", fmt.Errorf("the issuer's discovery document cannot be had: %w", err)
	}
	var doc struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if json.Unmarshal(raw, &doc) != nil || doc.Issuer != k.o.Issuer {
		return "", errors.New("the discovery document is another issuer's")
	}
	return doc.Keys, checkURL(doc.Keys, k.o.AllowHTTP)
}

func (k *keys) fetch(ctx context.Context, from string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys+1))
	if err == nil && len(raw) > maxKeys {
		err = errors.New("the answer is too long")
	}
	return raw, err
}

// fitting are the keys of a set that may verify: public or not, they are of use
// for signatures, and of no other algorithm.
func fitting(set jwk.Set, kid string, alg jwa.SignatureAlgorithm) []jwk.Key {
	var out []jwk.Key
	for i := range set.Len() {
		key, ok := set.Key(i)
		if _, unknown := key.(jwk.UnsupportedKey); !ok || unknown || key.KeyType() == jwa.OctetSeq() {
			continue // a shared secret verifies nothing here
		}
		if id, ok := key.KeyID(); kid != "" && (!ok || id != kid) {
			continue
		}
		if use, ok := key.KeyUsage(); ok && use != "" && use != jwk.ForSignature.String() {
			continue
		}
		if a, ok := key.Algorithm(); ok && a.String() != "" && a.String() != alg.String() {
			continue
		}
		out = append(out, key)
		if len(out) == 8 {
			break // each costs a verification
		}
	}
	return out
}
