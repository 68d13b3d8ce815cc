package cli

import (
	"errors"
	"fmt"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

type migrateCmd struct {
	settingsFlags
	databaseFlags
	Up     migrateUpCmd     `cmd:"" default:"withargs" help:"Apply what is missing. Several may run at once; one works."`
	Status migrateStatusCmd `cmd:"" help:"Say where the database stands. Exit code 4 when something is pending."`
	Repair migrateRepairCmd `cmd:"" help:"Explain and clear the mark of an interrupted migration."`
}

type migrateUpCmd struct {
	DryRun bool `help:"Print the SQL instead of running it."`
}

type migrateStatusCmd struct {
	JSON bool `help:"Print JSON."`
}

type migrateRepairCmd struct{}

// migrator opens the database of a command's flags.
func (c *migrateCmd) migrator(r *run) (*migrate.Migrator, error) {
	cfg, err := r.load(config.Default(), c.settingsFlags, c.databaseFlags.apply)
	if err != nil {
		return nil, err
	}
	return r.migrator(cfg)
}

func (r *run) migrator(cfg config.Config) (*migrate.Migrator, error) {
	return migrate.New(migrate.Options{DSN: cfg.DirectURL.Reveal(), Source: migrate.Embedded(Release()),
		Logger: obs.NewLogger(r.io.Err, cfg.LogLevel, cfg.LogFormat)})
}

func (c *migrateUpCmd) Run(r *run, cmd *root) error {
	m, err := cmd.Migrate.migrator(r)
	if err != nil {
		return err
	}
	if c.DryRun {
		plan, err := m.Plan(r.ctx)
		if err != nil {
			return err
		}
		if plan == "" {
			plan = "-- nothing to do\n"
		}
		_, err = fmt.Fprint(r.io.Out, plan)
		return err
	}
	report, err := m.Up(r.ctx)
	if err != nil {
		return err
	}
	for _, a := range report.Applied {
		fmt.Fprintf(r.io.Out, "applied %06d_%s\n", a.Version, a.Name)
	}
	if report.Functions > 0 {
		fmt.Fprintf(r.io.Out, "replaced %d functions\n", report.Functions)
	}
	if len(report.Applied) == 0 && report.Functions == 0 {
		fmt.Fprintln(r.io.Out, "nothing to do")
	}
	if w := report.Status.Warning(); w != "" {
		r.say("warning: %s", w)
	}
	return nil
}

func (c *migrateStatusCmd) Run(r *run, cmd *root) error {
	m, err := cmd.Migrate.migrator(r)
	if err != nil {
		return err
	}
	s, err := m.Status(r.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		type named struct {
			Version int            `json:"version"`
			Name    string         `json:"name"`
			Compat  migrate.Compat `json:"compat"`
		}
		list := func(in []migrate.Migration) []named {
			out := make([]named, 0, len(in))
			for _, m := range in {
				out = append(out, named{m.Version, m.Name, m.Compat})
			}
			return out
		}
		err = r.printJSON(map[string]any{"version": s.Version, "newest": s.Newest, "dirty": s.Dirty, "pending": list(s.Pending), "unknown": list(s.Unknown),
			"functions_pending": s.FunctionsPending, "functions_newer": s.FunctionsNewer, "database_release": s.DatabaseRelease, "release": s.BinaryRelease})
	} else {
		_, err = fmt.Fprint(r.io.Out, s.Explain())
	}
	if err != nil {
		return err
	}
	return usable(s)
}

// usable is Status.Usable, with the number of one migration put right.
func usable(s migrate.Status) error {
	err := s.Usable()
	if e, ok := errors.AsType[*migrate.Error](err); ok && e.Code == migrate.CodePending && len(s.Pending) == 1 {
		e.Detail = "1 migration of this binary is not in the database yet"
	}
	return err
}

func (c *migrateRepairCmd) Run(r *run, cmd *root) error {
	m, err := cmd.Migrate.migrator(r)
	if err != nil {
		return err
	}
	said, err := m.Repair(r.ctx)
	fmt.Fprint(r.io.Out, said)
	return err
}
