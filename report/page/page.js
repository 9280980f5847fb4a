// The page as a whole: light or dark, the summary with its filters, the figures.
"use strict";

const FACETS = ["trace", "hw", "policy", "cache", "miss", "evict", "admit", "front"], MAX_CHOICES = 60;

// --- light and dark: the system's choice until the reader makes one ---

function startTheme() {
	const button = document.getElementById("theme");
	const system = matchMedia("(prefers-color-scheme: dark)");
	const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
	const name = () => {
		button.textContent = isDark() ? "Light" : "Dark";
		button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
	};
	try {
		const kept = localStorage.getItem("gatemass-theme");
		if (kept === "dark" || kept === "light")
			document.documentElement.dataset.theme = kept;
	} catch (_) { /* a browser may keep nothing for files from disk */ }
	button.addEventListener("click", () => {
		const next = isDark() ? "light" : "dark";
		document.documentElement.dataset.theme = next;
		try {
			localStorage.setItem("gatemass-theme", next);
		} catch (_) { /* as above */ }
		name();
	});
	system.addEventListener("change", name);
	button.hidden = false;
	name();
}

// --- filters ---

// Words that a row must hold, and comparisons such as hit_rate>0.5.
function parseQuery(text, data) {
	const tests = [];
	for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
		const match = /^([a-z_]+)(<=|>=|<|>|=)(.+)$/.exec(word);
		const column = match && data.columns.find(c => c.name === match[1]);
		if (!column) {
			tests.push((row, hay) => hay(row).includes(word));
			continue;
		}
		const value = Number(match[3]);
		const compare = {"<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b}[match[2]];
		if (column.number)
			tests.push(row => compare(data.numbers(column)[row], value));
		else
			tests.push(row => column.text(row).toLowerCase() === match[3]);
	}
	return tests;
}

class Summary {
	constructor(element, raw, onFilter) {
		this.data = new Data(raw);
		this.onFilter = onFilter;
		this.facets = [];
		this.hay = [];
		this.usual = this.data.columns.filter(c => c.usual);
		this.table = new Table(this.data, this.usual, "Results");
		const controls = make("div", {class: "controls", role: "search"});
		this.search = make("input", {type: "search", placeholder: "words, or hit_rate>0.5", autocomplete: "off", id: "filter"});
		this.search.addEventListener("input", () => {
			clearTimeout(this.timer);
			this.timer = setTimeout(() => this.apply(), 120);
		});
		controls.append(make("label", null, "Filter", this.search));
		for (const name of FACETS)
			this.addFacet(controls, name);
		const all = make("input", {type: "checkbox", id: "all-columns"});
		all.addEventListener("change", () => this.table.setColumns(all.checked ? this.data.columns : this.usual));
		const csv = make("button", {type: "button", id: "download"}, "CSV");
		csv.setAttribute("aria-label", "Download the rows that are shown as CSV, all columns");
		csv.addEventListener("click", () => download("gatemass-results.csv", "text/csv", this.data.csv(this.table.rows)));
		this.count = make("span", {class: "count", role: "status", "aria-live": "polite"});
		controls.append(make("label", {class: "check"}, all, "all columns"), csv, this.count);
		element.append(controls, this.table.element);
		this.tell();
	}

	addFacet(controls, name) {
		const column = this.data.columns.find(c => c.name === name);
		if (!column || "all" in column)
			return;
		const values = column.names || Array.from(new Set(column.values));
		if (values.length < 2 || values.length > MAX_CHOICES)
			return;
		const select = make("select", {id: "facet-" + name}, make("option", {value: "-1"}, "all"));
		values.forEach((value, i) => select.append(make("option", {value: String(i)}, value === "" ? "(none)" : value)));
		select.addEventListener("change", () => this.apply());
		controls.append(make("label", null, column.title, select));
		this.facets.push({column, select, values});
	}

	rowText(row) {
		if (this.hay[row] === undefined)
			this.hay[row] = this.data.columns.map(c => c.text(row)).join("\n").toLowerCase();
		return this.hay[row];
	}

	apply() {
		const tests = parseQuery(this.search.value, this.data);
		for (const {column, select, values} of this.facets)
			if (select.value !== "-1")
				tests.push(row => column.text(row) === values[Number(select.value)]);
		const hay = row => this.rowText(row);
		const rows = this.data.allRows().filter(row => tests.every(test => test(row, hay)));
		const shown = new Uint8Array(this.data.n);
		for (const row of rows)
			shown[row] = 1;
		this.table.setRows(rows);
		this.tell();
		this.onFilter(row => shown[row] === 1);
	}

	tell() {
		const n = this.table.rows.length, all = this.data.n;
		this.count.textContent = n === all ? `${all} result${all === 1 ? "" : "s"}` : `${n} of ${all} results`;
	}
}

function start() {
	const raw = JSON.parse(document.getElementById("data").textContent);
	const tip = new Tip();
	const figures = Array.from(document.querySelectorAll("figure"), element => new Figure(element, raw.figures[element.id], tip));
	const summary = document.getElementById("summary");
	startTheme();
	if (summary)
		new Summary(summary, raw.results, isShown => figures.forEach(figure => figure.filter(isShown)));
	document.documentElement.dataset.ready = "yes";
}

start();
