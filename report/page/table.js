// A sortable table that shows as many rows as are asked for: of ten thousand rows only some hundred stand in the page.
"use strict";

const ROWS_AT_FIRST = 100, ROWS_MORE = 400;

class Table {
	constructor(data, columns, caption) {
		this.data = data;
		this.columns = columns;
		this.rows = data.allRows();
		this.sortColumn = null;
		this.descending = false;
		this.limit = ROWS_AT_FIRST;
		this.caption = caption;
		this.head = make("thead");
		this.body = make("tbody");
		this.more = make("button", {type: "button", class: "more"});
		this.more.addEventListener("click", () => {
			this.limit += ROWS_MORE;
			this.fill();
		});
		const scroll = make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
			make("table", null, make("caption", {class: "sr"}, caption), this.head, this.body));
		this.element = make("div", null, scroll, this.more);
		this.drawHead();
		this.fill();
	}

	drawHead() {
		const row = make("tr");
		for (const column of this.columns) {
			const button = make("button", {type: "button", title: column.name}, column.title);
			button.addEventListener("click", () => this.sort(column));
			const cell = make("th", {scope: "col", "aria-sort": "none", "data-column": column.name}, button);
			if (column.number)
				cell.classList.add("n");
			row.append(cell);
		}
		this.head.replaceChildren(row);
		this.markSort();
	}

	markSort() {
		for (const cell of this.head.querySelectorAll("th")) {
			const on = this.sortColumn && cell.dataset.column === this.sortColumn.name;
			cell.setAttribute("aria-sort", on ? (this.descending ? "descending" : "ascending") : "none");
		}
	}

	// A second click turns the order round. Empty cells come last in both.
	sort(column) {
		this.descending = this.sortColumn === column ? !this.descending : column.better > 0;
		this.sortColumn = column;
		this.order();
		this.markSort();
		this.fill();
	}

	order() {
		const column = this.sortColumn, turn = this.descending ? -1 : 1;
		if (!column)
			return;
		if (column.number) {
			const v = this.data.numbers(column);
			this.rows.sort((a, b) => {
				const x = v[a], y = v[b];
				if (x !== x || y !== y)
					return (x !== x) - (y !== y) || a - b;
				return (x - y) * turn || a - b;
			});
		} else {
			const compare = new Intl.Collator("en", {numeric: true}).compare;
			this.rows.sort((a, b) => compare(column.text(a), column.text(b)) * turn || a - b);
		}
	}

	setRows(rows) {
		this.rows = rows;
		this.limit = ROWS_AT_FIRST;
		this.order();
		this.fill();
	}

	setColumns(columns) {
		this.columns = columns;
		this.drawHead();
		this.fill();
	}

	fill() {
		const part = document.createDocumentFragment();
		for (const i of this.rows.slice(0, this.limit)) {
			const row = make("tr");
			for (const column of this.columns) {
				const cell = make("td", null, this.data.shown(column, i));
				if (column.number)
					cell.className = "n";
				cell.title = column.text(i);
				row.append(cell);
			}
			part.append(row);
		}
		this.body.replaceChildren(part);
		const left = this.rows.length - this.limit;
		this.more.hidden = left <= 0;
		this.more.textContent = `Show ${Math.min(ROWS_MORE, left)} more of ${left}`;
	}
}
