package cli

import (
	"bufio"
	"fmt"
	"strings"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/auth"
)

// tokenCmd keeps the file of users' tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token that acts as a principal, and print it once."`
	Hash   tokenHashCmd   `cmd:"" help:"Read a token from standard input and print its line for a token file."`
}

type tokenCreateCmd struct {
	Principal string        `help:"Who the token acts as, kind:id; for example user:ada, or system:framework to pass every check." required:"" placeholder:"KIND:ID"`
	File      string        `help:"Add its hash to this token file (ROUSE_TOKENS_FILE of the gateway); without it the line is printed to standard error." type:"path" placeholder:"FILE"`
	Name      string        `help:"What the token is for." placeholder:"TEXT"`
	Expires   time.Duration `help:"How long it is valid; without it, for ever." placeholder:"TIME"`
}

func (c tokenCreateCmd) Run(r *run) error {
	p, err := auth.Parse(c.Principal)
	if err != nil {
		return fail(ExitUsage, err)
	}
	if c.Expires < 0 {
		return failf(ExitUsage, "--expires must not be negative")
	}
	token := devtoken.NewToken()
	e := devtoken.Entry{Principal: p.Key(), SHA256: devtoken.Hash(token), Name: c.Name}
	if c.Expires > 0 {
		e.ExpiresAt = time.Now().Add(c.Expires).UTC().Truncate(time.Second)
	}
	switch {
	case c.File != "":
		if err := devtoken.Add(c.File, e); err != nil {
			return err
		}
		r.say("The token's hash is in %s. The token itself is printed once, here:", c.File)
	case c.Expires > 0:
		return failf(ExitUsage, "--expires needs --file: lines hold no time")
	default:
		r.say("For the token file: %s", tokenLine(e))
	}
	_, err = fmt.Fprintln(r.io.Out, token)
	return err
}

func tokenLine(e devtoken.Entry) string {
	return strings.TrimSpace(e.Principal + " sha256:" + e.SHA256 + " " + e.Name)
}

type tokenHashCmd struct {
	Principal string `help:"Who the token acts as, kind:id." required:"" placeholder:"KIND:ID"`
	Name      string `help:"What the token is for." placeholder:"TEXT"`
}

func (c tokenHashCmd) Run(r *run) error {
	p, err := auth.Parse(c.Principal)
	if err != nil {
		return fail(ExitUsage, err)
	}
	sc := bufio.NewScanner(r.io.In)
	if !sc.Scan() || strings.TrimSpace(sc.Text()) == "" {
		return failf(ExitUsage, "no token on standard input")
	}
	_, err = fmt.Fprintln(r.io.Out, tokenLine(devtoken.Entry{Principal: p.Key(), SHA256: devtoken.Hash(strings.TrimSpace(sc.Text())), Name: c.Name}))
	return err
}
