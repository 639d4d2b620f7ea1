//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/browser/chromium"
)

// TestMarketplace: nobody runs an operator's command after the start. Two providers log in, join their clusters, prove
// what they are and sell; a consumer finds the cheapest that is proven to be in the European Union, buys it on the page,
// uses it, and deletes it; the operator drains a cluster, and the consumer sees the move. All of them use Chromium.
func TestMarketplace(t *testing.T) {
	needMembers(t)
	w := openMarket(t)
	for _, v := range []*vendor{w.rhein, w.liberty} {
		v.joins(t)
	}
	w.rhein.sells(t, [2]string{"Large", "24.00"}, [2]string{"Small", "12.00"})
	w.liberty.sells(t, [2]string{"Small", "8.00"})

	shop := &guest{w, w.window(t)}
	shop.opens("")
	shop.Do(chromedp.SendKeys(chromedp.CSS(`input[name="user"]`), "shop"), chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), shopPassword+"\r"), chromedp.WaitVisible(`//h1[text()="Market"]`))
	shop.finds(t)
	shop.buys("shop-db")
	shop.pictures("own")
	shop.connects(t, "shop-db")
	shop.pays()
	shop.deletes("shop-db")
	nothingLeft(t, w.rhein.kind)

	shop.opens("order?service=anywhere&plan=anywhere-small")
	shop.buys("web")
	from := shop.isOn()
	olga := &guest{w, w.window(t)}
	olga.signsIn("olga")
	to := map[string]string{w.rhein.cluster: w.liberty.cluster, w.liberty.cluster: w.rhein.cluster}[from]
	olga.drains(from, to)
	shop.Do(chromedp.WaitVisible(`//dt[text()="Clusters"]/following-sibling::dd[text()="`+to+`"]`), chromedp.WaitVisible(`//b[text()="Moved"]`))
	shop.isUnloaded()
	shop.pictures("moved")
	olga.Do(chromedp.WaitVisible(`//span[text()="Nothing is left on it"]`))
	olga.isUnloaded()
	olga.pictures("drained")
	shop.deletes("web")
	for _, v := range []*vendor{w.rhein, w.liberty} {
		nothingLeft(t, v.kind)
	}
}

// joins lets a provider sign in and invite its cluster on the page, whose owner runs the command that the page shows;
// the page shows how far it is, until the provider has proven what it is.
func (v *vendor) joins(t *testing.T) {
	g := &guest{v.marketWorld, v.window(t)}
	g.signsIn(map[string]string{"rhein": "ruth", "liberty": "liam"}[v.name])
	g.Do(
		chromedp.Click(`//a[text()="Add a cluster"]`), chromedp.WaitVisible(chromedp.CSS("#cluster")),
		chromedp.SendKeys(chromedp.CSS("#cluster"), v.cluster), chromedp.SendKeys(chromedp.CSS("#region"), v.region), chromedp.SendKeys(chromedp.CSS("#cpu"), v.price),
		chromedp.SendKeys(chromedp.CSS("#offering"), "https://"+v.name+".example/selfdescription/offering-"+v.cluster+"#subject"),
		chromedp.Click(chromedp.CSS("button.main")), chromedp.WaitVisible(chromedp.CSS("pre")),
	)
	command := chromium.Read(g.Window, chromedp.Text(chromedp.CSS("pre")))
	if want := "--to " + v.public + " --context CONTEXT"; !strings.Contains(command, want) {
		t.Fatalf("the command has no %q:\n%s", want, command)
	}
	g.opens("supply")
	g.Do(chromedp.WaitVisible(step("Joined", "busy")))
	if out, want := v.shell(t, strings.Replace(command, "CONTEXT", "kind-"+v.kind, 1), v.kind), "cluster "+v.cluster+": has joined"; !strings.Contains(out, want) {
		t.Fatalf("it is answered %q, want %q", out, want)
	}
	g.Do(chromedp.WaitVisible(step("Admitted", "busy")))
	v.presents(t)
	g.Do(chromedp.WaitVisible(step("Sold", "busy")))
	g.isUnloaded()
	g.pictures("supply")
	g.opens("credentials")
	g.Do(chromedp.WaitVisible(`//h1[text()="Credentials"]`))
	if text := chromium.Read(g.Window, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(text, "Verified") || strings.Contains(text, "Rejected") {
		t.Errorf("the credentials of %s are %s", v.name, text)
	}
}

// step selects a step of a cluster on its way, in a state.
func step(word, state string) string {
	return fmt.Sprintf(`//span[contains(concat(" ", @class, " "), " %s ") and contains(., "%s")]`, state, word)
}

// guest is somebody at the console.
type guest struct {
	*marketWorld
	chromium.Window
}

// opens opens a page of the console, which a reload would make forget a mark.
func (g *guest) opens(path string) {
	g.Window.Helper()
	g.Do(chromedp.Navigate(g.public+"/console/"+path), chromedp.WaitVisible(chromedp.CSS("main")))
	g.marks()
}

// marks leaves a mark in the page, and isUnloaded checks that it is there: the page was not loaded again.
func (g *guest) marks() { chromium.Read(g.Window, chromedp.Evaluate[bool]("window.kept = true")) }

func (g *guest) isUnloaded() {
	g.Window.Helper()
	if !chromium.Read(g.Window, chromedp.Evaluate[bool]("window.kept === true")) {
		g.Error("the page was loaded again")
	}
}

// signsIn signs in at the issuer.
func (g *guest) signsIn(name string) {
	g.Window.Helper()
	g.opens("login")
	g.Do(chromedp.Click(`//a[contains(., "Sign in at")]`), chromedp.WaitVisible(chromedp.CSS(`input[name="name"]`)), chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), name+"\r"),
		chromedp.WaitVisible(`//form[@class="who"]`))
}

// pictures takes pictures of the window on a wide screen and on a phone's, if pictures are wanted.
func (g *guest) pictures(name string) {
	g.Window.Helper()
	g.Do(chromium.Look("light", 360))
	if wide := chromium.Read(g.Window, chromedp.Evaluate[int64]("document.documentElement.scrollWidth")); wide > 360 {
		g.Errorf("%s is %d wide on a screen of 360", name, wide)
	}
	g.Picture("market-" + name + "-phone.png")
	g.Do(chromium.Look("light", 1280))
	g.Picture("market-" + name + ".png")
}

// offers are the titles of the offers on the page of the market, in their order.
func (g *guest) offers() []string {
	g.Window.Helper()
	return chromium.Read(g.Window, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".offers h2")].map(h => h.textContent)`))
}

// finds leads from the market to the cheapest offer that is proven to be in the European Union.
func (g *guest) finds(t *testing.T) {
	eventually(t, time.Minute, "all offers are in the market", func(context.Context) string {
		g.opens("market?order=price")
		if got := fmt.Sprint(g.offers()); got != "[anywhere Small liberty Small rhein Small rhein Large]" {
			return got
		}
		return ""
	})
	g.Do(chromedp.Click(`//section[h2[text()="Proven to be in"]]//a[text()="EU"]`), chromedp.WaitVisible(`//a[text()="EU" and @aria-current="true"]`))
	if got := fmt.Sprint(g.offers()); got != "[rhein Small rhein Large]" {
		t.Fatalf("in the European Union are %s", got)
	}
	g.pictures("eu")
	g.Do(chromedp.Click(chromedp.CSS(".offers a")), chromedp.WaitVisible(`//h1[text()="rhein Small"]`))
	g.pictures("order")
}

// buys orders what the page offers, and waits until it is ready.
func (g *guest) buys(name string) {
	g.Window.Helper()
	g.Do(chromedp.SendKeys(chromedp.CSS("#name"), name), chromedp.Click(`//button[text()="Order"]`), chromedp.WaitVisible(`//h1[contains(., "`+name+`")]`))
	g.marks()
	g.Do(chromedp.WaitVisible(`//h1//*[contains(., "Ready")]`))
	g.isUnloaded()
}

// isOn returns the cluster that the instance is on, by its page.
func (g *guest) isOn() string {
	g.Window.Helper()
	return chromium.Read(g.Window, chromedp.Text(`//dt[text()="Clusters"]/following-sibling::dd`))
}

// connects binds the instance of the page, reads the credentials there, and uses the cluster with them.
func (g *guest) connects(t *testing.T, instance string) {
	g.Do(chromedp.Click(chromedp.CSS("summary")), chromedp.WaitVisible(chromedp.CSS("#binding")), chromedp.SendKeys(chromedp.CSS("#binding"), "app"), chromedp.Click(`//button[text()="Bind"]`),
		chromedp.WaitVisible(`//h3[contains(., "app") and contains(., "Ready")]`), chromedp.Click(`//button[text()="Show credentials"]`), chromedp.WaitVisible(`//h1[text()="Credentials of app"]`))
	shown := chromium.Read(g.Window, chromedp.Evaluate[map[string]string](`Object.fromEntries([...document.querySelectorAll("main section")].map(s => [s.querySelector("h2").textContent, s.querySelector("pre").textContent]))`))
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(shown["kubeconfig"]))
	must(t, err)
	useIt(t, instance, consumer{kubernetes.NewForConfigOrDie(config), shown["namespace"], config.Host})
	g.Do(chromedp.Click(chromedp.CSS(".trail a")), chromedp.WaitVisible(`//h1[contains(., "`+instance+`")]`))
}

// pays checks that the page says what the instance costs now, and the page of usage what it has cost.
func (g *guest) pays() {
	g.Window.Helper()
	// 0.3 cores, at the price of the cluster.
	g.Do(chromedp.WaitVisible(`//dd[contains(., "0.012 EUR an hour")]`), chromedp.Click(`//a[text()="Usage by the month"]`), chromedp.WaitVisible(`//h1[starts-with(., "Usage in")]`))
	g.pictures("usage")
}

// deletes deletes an instance with its bindings, and waits until it is gone from the list.
func (g *guest) deletes(name string) {
	g.Window.Helper()
	g.opens("mine/" + v1alpha1.InstanceName("shop", name))
	if chromium.Read(g.Window, chromedp.Evaluate[int](`[...document.querySelectorAll("button")].filter(b => b.textContent === "Unbind").length`)) > 0 {
		g.Do(chromedp.Click(`//button[text()="Unbind"]`), chromedp.WaitVisible(`//p[contains(., "It has no bindings")]`))
	}
	g.Do(chromedp.Click(`//a[contains(., "Delete it and its data")]`), chromedp.WaitVisible(chromedp.CSS("button.danger")))
	g.pictures("delete")
	g.Do(chromedp.Click(chromedp.CSS("button.danger")), chromedp.WaitVisible(`//h1[text()="My instances"]`), chromedp.WaitVisible(`//p[contains(., "You have no instances")]`))
}

// drains drains a cluster, from the page of the fleet, once it is said to where its instance would move.
func (g *guest) drains(cluster, to string) {
	g.Window.Helper()
	g.opens("fleet")
	g.Do(chromedp.Click(`//a[text()="`+cluster+`"]`), chromedp.WaitVisible(`//h1[contains(., "`+cluster+`")]`), chromedp.Click(`//a[text()="Drain…"]`), chromedp.WaitVisible(`//li[b[text()="1"] and a[text()="`+to+`"]]`))
	g.pictures("drain")
	g.Do(chromedp.Click(chromedp.CSS("button.danger")), chromedp.WaitVisible(`//h1//*[contains(., "Draining")]`))
	g.marks()
}
