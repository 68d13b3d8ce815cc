package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	upstream "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverJob carries as much as a message of the bench.
type riverJob struct {
	Text string `json:"text"`
}

// Kind implements upstream.JobArgs.
func (riverJob) Kind() string { return "bench" }

type riverWorker struct {
	upstream.WorkerDefaults[riverJob]
	worked *atomic.Int64
}

// Work implements upstream.Worker; the queue is what is measured, so there is nothing to do.
func (w *riverWorker) Work(context.Context, *upstream.Job[riverJob]) error {
	w.worked.Add(1)
	return nil
}

const (
	riverWorkers     = 500
	riverConnections = 10
	riverInsert      = 500
)

// riverJobs inserts jobs in batches by COPY and works them in this process at the same time, for d and until none is
// left, and returns jobs a second from the first insert to the last completion.
func (r *rig) riverJobs(ctx context.Context, database string, d time.Duration) (float64, error) {
	if err := r.pg.Exec(ctx, "postgres", "create database "+database); err != nil {
		return 0, err
	}
	cfg, err := pgxpool.ParseConfig(r.pg.DSN(database))
	if err != nil {
		return 0, err
	}
	cfg.MaxConns = riverConnections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	var worked atomic.Int64
	workers := upstream.NewWorkers()
	upstream.AddWorker(workers, &riverWorker{worked: &worked})
	client, err := upstream.NewClient(driver, &upstream.Config{
		Logger: silent, Workers: workers, FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]upstream.QueueConfig{upstream.QueueDefault: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return 0, err
	}
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	text := string(message(0, payload))
	began, inserted := time.Now(), int64(0)
	for time.Since(began) < d {
		batch := make([]upstream.InsertManyParams, riverInsert)
		for i := range batch {
			batch[i].Args = riverJob{Text: text}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return 0, err
		}
		inserted += riverInsert
		// The backlog stays small: insertion and work take part in the figure alike.
		for inserted-worked.Load() > 20*riverInsert && ctx.Err() == nil {
			sleep(ctx, time.Millisecond)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		left := int64(0)
		if err := pool.QueryRow(ctx, "select count(*) from river_job where state <> 'completed'").Scan(&left); err != nil && err != pgx.ErrNoRows {
			return 0, err
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d of %d jobs are not completed after a minute", left, inserted)
		}
		sleep(ctx, 20*time.Millisecond)
	}
	elapsed := time.Since(began)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return float64(inserted) / elapsed.Seconds(), client.StopAndCancel(stop)
}
