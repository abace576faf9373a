// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/setpoint-dev/setpoint/controller"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// maxMissed is how many runs may be missed in a row. After a jump of the clock by years, counting
// all of them would keep a worker busy.
const maxMissed = 100

// A plan is what to do at one moment.
type plan struct {
	run     time.Time     // start the run of this time; zero: none
	replace bool          // delete the active Jobs before
	expired time.Time     // the first run that was missed by more than its deadline; zero: none
	wait    time.Duration // how long until the next run
}

// decide returns the plan for a CronJob that is not suspended. Only a change of the CronJob can fix
// an error.
func decide(cj *v1.CronJob, jobs *children, now time.Time) (plan, error) {
	due, expired, next, err := nextSchedule(cj, now)
	if err != nil {
		return plan{}, controller.Terminal(err)
	}
	p := plan{run: due, expired: expired, wait: next.Sub(now)}
	if due.IsZero() || len(jobs.active) == 0 {
		return p, nil
	}
	switch cj.Spec.ConcurrencyPolicy {
	case v1.ForbidConcurrent:
		p.run = time.Time{} // the end of the active Job makes the key due
	case v1.ReplaceConcurrent:
		p.replace = true
	}
	return p, nil
}

// nextSchedule returns the newest run that is due, and the next one after now. Earlier missed runs
// are skipped. A run is due until its deadline. If runs are past their deadlines, expired is the
// first of them. The schedule is in the time zone of now.
func nextSchedule(cj *v1.CronJob, now time.Time) (due, expired, next time.Time, err error) {
	none := time.Time{}
	sched, err := cron.ParseStandard(cj.Spec.Schedule)
	if err != nil {
		return none, none, none, &problem{reasonInvalidSchedule, fmt.Errorf("the schedule %q is invalid: %w", cj.Spec.Schedule, err)}
	}
	if next = sched.Next(now); next.IsZero() {
		return none, none, none, &problem{reasonInvalidSchedule, fmt.Errorf("the schedule %q names no time in the next five years", cj.Spec.Schedule)}
	}
	since := cj.CreationTimestamp.Time
	if last := cj.Status.LastScheduleTime; last != nil {
		since = last.Time
	}
	since = since.In(now.Location())
	if limit := cj.Spec.StartingDeadlineSeconds; limit != nil && *limit < int64(now.Sub(since)/time.Second) {
		oldest := now.Add(-time.Duration(*limit) * time.Second)
		if first := sched.Next(since); !first.After(oldest) {
			expired = first
		}
		since = oldest
	}
	missed := 0
	for t := sched.Next(since); !t.After(now); t = sched.Next(t) {
		due = t
		if missed++; missed > maxMissed {
			return none, none, none, &problem{reasonTooManyMissed, fmt.Errorf("too many missed starts (more than %d); set or lower spec.startingDeadlineSeconds, or check the clocks", maxMissed)}
		}
	}
	return due, expired, next, nil
}

func suspended(cj *v1.CronJob) bool {
	return cj.DeletionTimestamp != nil || cj.Spec.Suspend != nil && *cj.Spec.Suspend
}
