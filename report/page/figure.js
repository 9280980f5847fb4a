// Figures: the value under the pointer or the keyboard, the data as a table, downloads, and what the filter leaves.
"use strict";

const NEAR = 26; // pixels from a mark at which it still counts as meant

class Tip {
	constructor() {
		this.element = make("div", {class: "tip", role: "status", "aria-live": "polite", hidden: ""});
		document.body.append(this.element);
	}

	show(data, i, x, y) {
		const lines = [];
		for (const column of data.columns) {
			const text = data.shown(column, i);
			if (text === "" || column.name === "cache_fraction" || (column.name === "trace" && "all" in column))
				continue;
			lines.push(make("div", null, make("span", null, column.title), make("span", null, text)));
		}
		this.element.replaceChildren(...lines);
		this.element.hidden = false;
		const box = this.element.getBoundingClientRect();
		const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
		const top = y + 16 + box.height > innerHeight ? y - 16 - box.height : y + 16;
		this.element.style.left = Math.max(6, left) + "px";
		this.element.style.top = Math.max(6, top) + "px";
	}

	hide() {
		this.element.hidden = true;
	}
}

// What stands for a row: a mark, which is a piece of a path, or a rectangle of its own.
class Chart {
	constructor(svg, data, tip) {
		this.svg = svg;
		this.data = data;
		this.tip = tip;
		this.paths = []; // of marks: {element, faded}
		this.items = []; // {i, x, y, path and d, or element}
		this.current = null;
		svg.querySelectorAll("path[data-i]").forEach(element => this.takePath(element));
		svg.querySelectorAll("rect[data-i]").forEach(element => this.takeRect(element));
		if (this.items.length === 0)
			return;
		svg.setAttribute("tabindex", "0");
		svg.addEventListener("pointermove", event => this.point(event));
		svg.addEventListener("pointerdown", event => this.point(event));
		svg.addEventListener("pointerleave", () => this.select(null));
		svg.addEventListener("keydown", event => this.key(event));
		svg.addEventListener("blur", () => this.select(null));
	}

	takePath(element) {
		const path = {element, faded: null};
		const pieces = element.getAttribute("d").split(/(?=M)/);
		element.dataset.i.split(" ").forEach((i, k) => {
			const [x, y] = pieces[k].slice(1).split(/[ m]/, 2).map(Number);
			this.items.push({i: Number(i), x, y, path, d: pieces[k], off: false});
		});
		this.paths.push(path);
	}

	takeRect(element) {
		const [x, y, width, height] = ["x", "y", "width", "height"].map(name => Number(element.getAttribute(name)));
		this.items.push({i: Number(element.dataset.i), x: x + width / 2, y: y + height / 2, width, height, element, off: false});
	}

	// From the chart's units to the window.
	place(item) {
		const box = this.svg.getBoundingClientRect(), scale = box.width / this.svg.viewBox.baseVal.width;
		return [box.left + item.x * scale, box.top + item.y * scale];
	}

	nearest(event) {
		const box = this.svg.getBoundingClientRect(), scale = this.svg.viewBox.baseVal.width / box.width;
		const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
		let best = null, distance = NEAR * scale;
		for (const item of this.items) {
			if (item.off)
				continue;
			const dx = Math.abs(item.x - x), dy = Math.abs(item.y - y);
			if (item.element) {
				if (dx <= item.width / 2 && dy <= item.height / 2)
					return item;
			} else if (dx < distance && dy < distance && Math.hypot(dx, dy) < distance) {
				distance = Math.hypot(dx, dy);
				best = item;
			}
		}
		return best;
	}

	point(event) {
		this.select(this.nearest(event), event.clientX, event.clientY);
	}

	select(item, x, y) {
		if (item !== this.current && this.ring) {
			this.ring.remove();
			this.ring = null;
		}
		this.current = item;
		if (!item) {
			this.tip.hide();
			return;
		}
		if (!this.ring) {
			this.ring = document.createElementNS(this.svg.namespaceURI, item.element ? "rect" : "circle");
			const shape = item.element ? {x: item.x - item.width / 2, y: item.y - item.height / 2, width: item.width, height: item.height} :
				{cx: item.x, cy: item.y, r: 7};
			for (const [name, value] of Object.entries(shape))
				this.ring.setAttribute(name, value);
			this.ring.setAttribute("class", "ring");
			this.svg.append(this.ring);
		}
		this.tip.show(this.data, item.i, x, y);
	}

	key(event) {
		const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
		const items = this.items.filter(item => !item.off);
		let next = items.indexOf(this.current);
		if (event.key === "Escape") {
			this.select(null);
			return;
		}
		if (step)
			next = next < 0 ? (step > 0 ? 0 : items.length - 1) : (next + step + items.length) % items.length;
		else if (event.key === "Home")
			next = 0;
		else if (event.key === "End")
			next = items.length - 1;
		else
			return;
		event.preventDefault();
		if (items.length > 0)
			this.select(items[next], ...this.place(items[next]));
	}

	// What the filter leaves out fades; a line fades when all of its marks have.
	filter(isShown) {
		const shown = i => this.data.result[i] < 0 || isShown(this.data.result[i]);
		for (const item of this.items) {
			item.off = !shown(item.i);
			if (item.element)
				item.element.classList.toggle("off", item.off);
		}
		for (const path of this.paths)
			this.redraw(path);
		for (const line of this.svg.querySelectorAll("[data-rows]")) {
			const [from, to] = line.dataset.rows.split(" ").map(Number);
			let any = false;
			for (let i = from; i < to && !any; i++)
				any = shown(i);
			line.classList.toggle("off", !any);
		}
		this.select(null);
	}

	// The faded pieces of a path become a path of their own, below it.
	redraw(path) {
		const items = this.items.filter(item => item.path === path);
		const set = (element, part) => {
			element.setAttribute("d", part.map(item => item.d).join(""));
			element.dataset.i = part.map(item => item.i).join(" ");
		};
		const faded = items.filter(item => item.off);
		if (!path.faded && faded.length > 0) {
			path.faded = path.element.cloneNode();
			path.faded.classList.add("off");
		}
		set(path.element, items.filter(item => !item.off));
		if (path.faded) {
			set(path.faded, faded);
			if (faded.length > 0)
				path.element.before(path.faded);
			else
				path.faded.remove();
		}
	}
}

// A chart with its style, to stand alone.
function svgFile(svg) {
	const copy = svg.cloneNode(true);
	const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
	style.textContent = document.getElementById("chart-style").textContent;
	copy.removeAttribute("tabindex");
	copy.querySelectorAll(".ring").forEach(ring => ring.remove());
	copy.prepend(style);
	return new XMLSerializer().serializeToString(copy);
}

class Figure {
	constructor(element, raw, tip) {
		const id = element.id;
		this.data = new Data(raw);
		this.charts = Array.from(element.querySelectorAll("svg"), svg => new Chart(svg, this.data, tip));
		const tools = element.querySelector(".tools");
		const csv = make("button", {type: "button"}, "CSV");
		csv.setAttribute("aria-label", "Download the data of this figure as CSV");
		csv.addEventListener("click", () =>
			download(`gatemass-${id}.csv`, "text/csv", this.data.csv(this.data.allRows())));
		const svg = make("button", {type: "button"}, "SVG");
		svg.setAttribute("aria-label", "Download this figure as SVG");
		svg.addEventListener("click", () => this.charts.forEach((chart, i) =>
			download(`gatemass-${id}${this.charts.length > 1 ? "-" + (i + 1) : ""}.svg`, "image/svg+xml", svgFile(chart.svg))));
		tools.append(csv, svg);
		const details = element.querySelector("details");
		details.addEventListener("toggle", () => {
			if (details.open && !this.table) {
				this.table = new Table(this.data, this.data.columns, "Data of " + element.querySelector("h3").textContent);
				details.append(this.table.element);
			}
		});
	}

	filter(isShown) {
		this.charts.forEach(chart => chart.filter(isShown));
	}
}
