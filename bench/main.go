// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench compares Setpoint with client-go and controller-runtime. By default it compares
// workqueues. The contestants take turns in one run, so that other load affects all. It prints
// ratios: the median over the rounds of each round's ratio. With -json it also writes the tables to
// a file. With -charts it draws three of them as SVG: packed (memory), failover and fairness.
//
//	GOWORK=off go run . [-rounds 7] [-cpu] [-json file] [-charts directory]
//
// The cost of bringing up a controller's cache, against a control plane that it starts:
//
//	GOWORK=off go run . -only informers [-rounds 7] [-objects 100000] [-kubeconfig file]
//		[-profile directory]
//
// The cost of a no-op Reconcile, from queue to queue:
//
//	GOWORK=off go run . -only reconcile [-rounds 7] [-deliveries 200000] [-profile directory]
//
// Controllers whose watches lag behind their own writes:
//
//	GOWORK=off go run . -only ryw [-cycles 10000] [-keys 200] [-lag 500ms] [-limit 3m]
//		[-kubeconfig file]
//
// How long an operator does not work when its leader is stopped or killed, what its Lease costs,
// how long it takes to stop when its caches do not sync, and how long a new leader waits until its
// caches show what was written before (about 15 minutes):
//
//	GOWORK=off go run . -only failover [-failovers 20] [-failover gaps|costs|unsynced|takeover]
//
// The live heap of a process that keeps 250,000 small ConfigMaps:
//
//	GOWORK=off go run . -only heap [-rounds 3] [-kept 250000] [-heap-profile directory]
//
// The number of keys reconciled before the keys of another namespace, and before a user's change,
// while 50,000 others wait or fail:
//
//	GOWORK=off go run . -only fairness [-fairness tenants|changes] [-crowd 50000] [-changes 20]
//		[-kubeconfig file]
//
// The cost of a typed validator on an object of 10 KB:
//
//	GOWORK=off go run . -only webhooks [-rounds 7]
//
// 300 writes at once to a TLS server with 100 streams per connection, beside client-go:
//
//	GOWORK=off go run . -only connections [-rounds 7]
//
// Requests that the API server refuses while webhook certificates rotate, beside cert-controller
// and knative (about 4 minutes each):
//
//	GOWORK=off go run . -only rotation [-rotations 50] [-kill-every 10] [-hard] [-failures]
//		[-certificates setpoint,cert-controller,knative]
//
// Caches that keep objects packed, beside client-go and controller-runtime. A round takes about 5
// minutes of processor time, and 3 more with work-typed or work-unstructured. It needs no control
// plane: the server and the objects are in this program. Semicolons separate contestants' names:
//
//	GOWORK=off go run . -only packed [-rounds 5] [-objects 100000] [-profile directory]
//		[-packed-jobs hold,work,index,both,trim,work-typed,work-unstructured]
//		[-packed-kinds pods,configmaps,typed,unstructured,nodes]
//		[-packed-contestants "client-go;setpoint, packed"]
//
// An operator of controller-runtime, with its read-your-writes option, and at both levels of
// crbridge: duplicates and the rate of one worker while watches are late, Reconciles that a stop
// cuts off, writes after a lost Lease, memory, and a cached Get (about 4 minutes):
//
//	GOWORK=off go run . -only bridge [-bridge duplicates,rate,stop,lease,memory,reads] [-rounds 7]
//		[-bridge-keys 100] [-bridge-limit 15s] [-bridge-objects 10000] [-bridge-gets 20000]
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
)

func main() {
	if replica := ofEnvironment(); replica != nil {
		if err := replica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// controller-runtime has defined a flag, -kubeconfig, which is ours here.
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	rounds := flag.Int("rounds", 7, "`number` of times that each measurement is made")
	only := flag.String("only", "", "the `part` to run: time, everybody, memory, size, tenants, failures (default: all these), informers, reconcile, ryw, failover, fairness, heap, packed, webhooks, connections, rotation, bridge")
	cpu := flag.Bool("cpu", false, "measure processor time instead of elapsed time")
	jsonFile := flag.String("json", "", "also write the tables, and the values behind some, to this `file`")
	chartDir := flag.String("charts", "", "also draw the charts of the parts that have one, as SVG in this `directory`")
	informers := newInformers()
	reconciles, ownWrites := newReconciles(informers), newOwnWrites(informers)
	failover, fair, heap, certificates := newFailover(), newFairness(informers), newHeap(), newRotations()
	packs, bridges := newPacked(informers), newBridge()
	flag.Parse()
	if packs.child != "" {
		packs.main()
		return
	}
	if heap.holder != "" {
		heap.main()
		return
	}
	if informers.contestant != "" {
		informers.main()
		return
	}
	if *cpu {
		clock = cpuClock
	}
	fmt.Printf("%s %s/%s, %d processors\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	parts := []struct {
		name string
		run  func(w *report, rounds int)
	}{
		{"time", times}, {"everybody", everybody}, {"memory", memory}, {"size", sizes}, {"tenants", tenants}, {"failures", failures},
		{"informers", informers.run}, {"reconcile", reconciles.run}, {"ryw", ownWrites.run}, {"failover", failover.run},
		{"fairness", fair.run}, {"heap", heap.run}, {"packed", packs.run}, {"webhooks", webhooks}, {"connections", connections}, {"rotation", certificates.run},
		{"bridge", bridges.run},
	}
	w := newReport(os.Stdout)
	for i, p := range parts {
		if *only == "" && i < 6 || *only == p.name {
			fmt.Println()
			w.begin(p.name)
			p.run(w, *rounds)
			w.Flush()
		}
	}
	if err := w.write(*jsonFile, *chartDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ofEnvironment returns the replica that this process is, or nil.
func ofEnvironment() func() error {
	switch contestant := os.Getenv(rotationContestant); {
	case contestant != "":
		return func() error { return rotationReplica(contestant) }
	case os.Getenv(asReplica) != "":
		return replicaMain
	}
	return nil
}

// times prints the time per operation of all measurements in all modes.
func times(w *report, rounds int) {
	for mode := plain; mode <= extras; mode++ {
		title := modes[mode]
		fmt.Fprintf(w, "%s\tsetpoint\tallocs\tclient-go\tallocs\tratio\tmost\t\tcontroller-runtime\tallocs\tfaster\tleast\t\n", title)
		for _, m := range measurements {
			row(w, m, mode, rounds)
		}
		fmt.Fprintln(w)
	}
}

func row(w *report, m measurement, on mode, rounds int) {
	results := make([][]result, len(makers))
	for round := range rounds {
		for i := range makers {
			which := (i + round) % len(makers) // a different one starts each round
			q := makers[which].make(m.base, on)
			results[which] = append(results[which], m.run(q))
			q.Close()
		}
	}
	var toClientGo, toRuntime []float64
	for r := range rounds {
		toClientGo = append(toClientGo, results[0][r].ns/results[1][r].ns)
		toRuntime = append(toRuntime, results[2][r].ns/results[0][r].ns)
	}
	ratio, faster, most := median(toClientGo), median(toRuntime), m.plain
	if on == extras {
		most = m.extras
	}
	col := func(i int) string {
		var ns, allocs []float64
		for _, r := range results[i] {
			ns, allocs = append(ns, r.ns), append(allocs, r.allocs)
		}
		return fmt.Sprintf("%.0f ns\t%.2f", median(ns), median(allocs))
	}
	bound, ok := "", ""
	if most > 0 {
		bound, ok = fmt.Sprintf("%.1f", most), verdict(ratio <= most)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t%.1f ×\t", m.name, col(0), col(1), ratio, bound, ok, col(2), faster)
	if m.faster > 0 && on == plain {
		fmt.Fprintf(w, "%.0f ×\t%s", m.faster, verdict(faster >= m.faster))
	}
	fmt.Fprintln(w, "\t")
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISSED"
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[n/2] + v[(n-1)/2]) / 2
}
