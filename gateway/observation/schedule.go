package observation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// schedule carries out what is due, and says whether anything was.
func (w *Worker) schedule(ctx context.Context) bool {
	found := false
	for ctx.Err() == nil {
		due, err := w.cfg.DB.ScheduleTake(ctx, taskLimit)
		if err != nil {
			w.failed(ctx, "due tasks could not be taken; trying again", "SCHEDULE_FAILED", err)
			return found
		}
		moved, cleared := false, false
		for _, t := range due {
			outcome, err := w.carryOut(ctx, t)
			if err != nil && ctx.Err() == nil {
				outcome = "failed"
				cleared = w.postpone(ctx, t, err) || cleared
			}
			w.fired.WithLabelValues(t.Kind, outcome).Inc()
			moved = moved || err == nil && outcome != "stale"
		}
		found = found || moved
		if moved {
			pace.Poke(w.observers)
		}
		if !moved && !cleared || len(due) < taskLimit {
			return found
		}
	}
	return found
}

// postpone puts a task that failed behind those that do not, and says whether it
// did.
func (w *Worker) postpone(ctx context.Context, t store.Task, cause error) bool {
	after := postponed
	if problem.CodeOf(cause) == "" || hopeless(cause) {
		after = poisoned
	}
	w.cfg.Log.Warn("a due task could not be carried out; trying again", "code", "SCHEDULE_FAILED", "task", t.ID, "kind", t.Kind, "after", after, "err", cause)
	ok, err := w.cfg.DB.SchedulePostpone(ctx, t, after)
	if err != nil {
		w.failed(ctx, "a task that failed could not be postponed", "SCHEDULE_FAILED", err)
	}
	return ok
}

func (w *Worker) carryOut(ctx context.Context, t store.Task) (string, error) {
	if t.Kind == "cron_tick" {
		return w.tick(ctx, t)
	}
	var m staterow.Message
	if err := json.Unmarshal([]byte(t.Message), &m); err != nil {
		return "", fmt.Errorf("a scheduled message: %w", err)
	}
	if m.Key == "" {
		m.Key = "scheduled-task-" + strconv.FormatInt(t.ID, 10)
	}
	row, _, _ := m.Row(t.Now)
	var sent string
	var failed []string
	if t.OwnerURL != "" {
		at := staterow.Time(t.Now)
		sent = told(t, at, map[string]any{"status": "sent", "sentAt": at})
		for _, why := range []string{"There is no such entity.", "The entity is stopped or stopping.", "The schedule's owner may not send to the entity."} {
			failed = append(failed, told(t, at, map[string]any{"status": "failed", "failedAt": at, "lastError": why}))
		}
	}
	return w.cfg.DB.ScheduleSend(ctx, t, row, sent, failed, m.Mode != "paused")
}

// tick lets a cron stream tick. What was missed while nobody could fire it is
// made up for by one tick: the next one is the first after now.
func (w *Worker) tick(ctx context.Context, t store.Task) (string, error) {
	c, err := ParseCron(t.Expression, t.Timezone)
	if err != nil {
		return "", fmt.Errorf("a cron expression %w", err) // does not hold the expression
	}
	next := func(after time.Time) time.Time {
		if at := c.Next(after); !at.IsZero() {
			return at
		}
		return t.Now.AddDate(5, 0, 0)
	}
	if !t.Planned {
		if _, err := w.cfg.DB.SchedulePlan(ctx, t, next(t.DueAt)); err != nil {
			return "", err
		}
		return "planned", nil
	}
	n := t.Tick + 1
	at := staterow.Time(t.Now)
	row := staterow.Text(staterow.Headers{Operation: "insert", Timestamp: at}, "cron_tick", "tick-"+strconv.FormatInt(n, 10), struct {
		Expression string `json:"expression"`
		Timezone   string `json:"timezone"`
		FiredAt    string `json:"firedAt"`
		TickNumber int64  `json:"tickNumber"`
	}{c.Expression, c.Timezone, at, n})
	return w.cfg.DB.ScheduleTick(ctx, t, row, next(t.Now))
}

// told is the manifest row that says what became of a scheduled message.
func told(t store.Task, at string, with map[string]any) string {
	entry := map[string]any{}
	for k, v := range object(json.RawMessage(t.Manifest)) {
		entry[k] = v
	}
	for _, k := range []string{"sentAt", "failedAt", "lastError"} {
		delete(entry, k)
	}
	maps.Copy(entry, with)
	return staterow.Text(staterow.Headers{Operation: "update", Timestamp: at}, "manifest", t.ManifestKey, entry)
}
