package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/store/inspect"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

type doctorCmd struct {
	settingsFlags
	databaseFlags
	JSON    bool          `help:"Print JSON."`
	Strict  bool          `help:"Fail on warnings too."`
	Timeout time.Duration `help:"Bound of the whole check." default:"15s"`
}

func (c *doctorCmd) Run(r *run) error {
	cfg, err := r.load(config.Default(), c.settingsFlags, c.databaseFlags.apply)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, c.Timeout)
	defer cancel()
	findings := inspect.Run(ctx, inspect.Target{DSN: cfg.DatabaseURL.Reveal(), DirectDSN: cfg.DirectURL.Reveal(), Source: migrate.Embedded(Release())})
	worst := inspect.Worst(findings)
	if c.JSON {
		if err := r.printJSON(map[string]any{"worst": worst, "findings": findings}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(r.io.Out, "%-5s  %-23s %s\n", f.Severity, f.Code, f.Detail)
			if f.Fix != "" && f.Severity != inspect.OK {
				fmt.Fprintf(r.io.Out, "       %-23s → %s\n", "", f.Fix)
			}
		}
	}
	switch {
	case len(findings) == 1 && findings[0].Code == "DATABASE_UNAVAILABLE":
		return failf(ExitUnavailable, "the database cannot be reached")
	case worst == inspect.Error:
		return failf(ExitFindings, "the database is not fit for a gateway")
	case worst == inspect.Warn && c.Strict:
		return failf(ExitFindings, "there are warnings")
	}
	return nil
}
